//! Do members agree? Every member of a group issues one op of each of its collectives, with operands like the others'.

use super::{Finding, FindingKind, Named};
use crate::base::{BufferId, CollectiveId, Dtype, OpId, Rank};
use crate::program::exchange::{pieces, unequal_place};
use crate::program::partners::Partners;
use crate::program::tables::Program;

/// What is wrong with collectives. One that no rank issues is no part of the program.
pub(super) fn check(program: &Program, partners: &Partners) -> Vec<Finding> {
    let mut findings = Vec::new();
    for collective in (0..program.collectives.len()).map(CollectiveId::new) {
        let mut meeting = Meeting::default();
        partners.members(collective).iter().for_each(|&op| meeting.join(program, collective, op, &mut findings));
        findings.extend(meeting.missing(program, collective, partners));
        findings.extend(unequal(program, collective, partners.members(collective)));
    }
    findings
}

/// Who has come to a collective so far.
#[derive(Default)]
struct Meeting {
    first: Option<OpId>,
    latest: Option<OpId>,
    members: usize,
}

impl Meeting {
    fn join(&mut self, program: &Program, collective: CollectiveId, op: OpId, findings: &mut Vec<Finding>) {
        let rank = program.rank_of(op);
        let again = self.latest.filter(|&latest| program.rank_of(latest) == rank);
        self.latest = Some(op);
        if again.is_some() || !is_member(program, collective, self.members, rank) {
            findings.push(extra(program, again, op));
            return;
        }
        self.members += 1;
        let first = *self.first.get_or_insert(op);
        let is_unequal = |op| unequal_place(program, collective, op).is_some();
        let may_differ = is_unequal(first) && is_unequal(op);
        if !may_differ && !are_alike(program, first, op) {
            findings.push(unlike(program, first, op));
        }
    }

    /// The members that never came.
    fn missing(&self, program: &Program, id: CollectiveId, partners: &Partners) -> Option<Finding> {
        let collective = &program.collectives[id.index()];
        let group = &program.groups[collective.group.index()];
        let first = self.first.filter(|_| self.members < group.ranks.len())?;
        let came: Vec<Rank> = partners.members(id).iter().map(|&op| program.rank_of(op)).collect();
        let absent: Vec<String> = group.ranks.iter().filter(|rank| !came.contains(rank)).map(Rank::to_string).collect();
        let absent = absent.join(", ");
        Some(Finding {
            kind: FindingKind::MissingMember,
            rank: program.rank_of(first),
            ops: vec![first],
            sentence: format!("{} waits for members of {} that never come: {absent}", Named(program, first), group.name),
            hint: format!("issue the collective on {absent} too"),
        })
    }
}

/// Whether `rank` is in the group. Ranks mostly come in the order of the group, so that the `next`-th member is the likely one.
fn is_member(program: &Program, collective: CollectiveId, next: usize, rank: Rank) -> bool {
    let ranks = &program.group_of(collective).ranks;
    ranks.get(next) == Some(&rank) || ranks.contains(&rank)
}

/// Members of which one expects another piece than the other sends.
fn unequal(program: &Program, collective: CollectiveId, members: &[OpId]) -> Option<Finding> {
    let place = |op: OpId| unequal_place(program, collective, op);
    let pairs = members.iter().flat_map(|&sender| members.iter().map(move |&receiver| (sender, receiver)));
    let shapes = |operands: &[BufferId], place: usize| -> Vec<(Dtype, &[usize])> {
        let piece = pieces(program, operands, members.len()).into_iter().nth(place).unwrap_or_default();
        piece.into_iter().map(|part| (part.dtype, part.dims.as_slice())).collect()
    };
    let mut differing = pairs.filter(|&(sender, receiver)| {
        let (Some(from), Some(to)) = (place(sender), place(receiver)) else { return false };
        shapes(program.reads(sender), to) != shapes(program.writes(receiver), from)
    });
    let (sender, receiver) = differing.next()?;
    Some(Finding {
        kind: FindingKind::UnlikeMembers,
        rank: program.rank_of(receiver),
        ops: vec![sender, receiver],
        sentence: format!(
            "{} expects another piece than {} of {} sends",
            Named(program, receiver),
            Named(program, sender),
            program.rank_of(sender)
        ),
        hint: "what a member writes from another has the shape of what that one reads for it".to_owned(),
    })
}

fn are_alike(program: &Program, first: OpId, op: OpId) -> bool {
    let layout = |buffer: &BufferId| program.buffers[buffer.index()].layout;
    let are_alike = |a: &[BufferId], b: &[BufferId]| a.iter().map(layout).eq(b.iter().map(layout));
    are_alike(program.reads(first), program.reads(op)) && are_alike(program.writes(first), program.writes(op))
}

fn extra(program: &Program, again: Option<OpId>, op: OpId) -> Finding {
    let (sentence, hint) = match again {
        Some(_) => (format!("{} is issued a second time", Named(program, op)), "a member takes part in a collective once"),
        None => (
            format!("{} is issued by a rank that is no member", Named(program, op)),
            "leave it out, or add the rank to the group",
        ),
    };
    let ops = again.into_iter().chain([op]).collect();
    Finding { kind: FindingKind::ExtraMember, rank: program.rank_of(op), ops, sentence, hint: hint.to_owned() }
}

fn unlike(program: &Program, first: OpId, op: OpId) -> Finding {
    let (other, own) = (program.reads(first).len(), program.reads(op).len());
    let how = if own == other {
        "other shapes".to_owned()
    } else {
        format!("{} operands {}", own.abs_diff(other), if own < other { "fewer" } else { "more" })
    };
    Finding {
        kind: FindingKind::UnlikeMembers,
        rank: program.rank_of(op),
        ops: vec![first, op],
        sentence: format!("{} brings {how} than {} of {}", Named(program, op), Named(program, first), program.rank_of(first)),
        hint: "all members bring as many operands, of the same shapes, in the same order".to_owned(),
    }
}

//! Mesh: the ranks along their axes, the groups of the rank in focus, over which wires they talk and what it sends them.

use super::parts::{Cut, Head, Line, left, pane, paragraph, right, table};
use crate::base::Rank;
use crate::observe::cube::{Cube, Mark, Party};
use crate::tui::data::{PanelView, RunData};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// Members of a group that are named.
const MOST_NAMED: usize = 6;
/// Lines that the picture keeps.
const PICTURE: u16 = 6;
/// Columns of a pane's title that are its frame's.
const FRAME: usize = 6;
/// Lines of the pane below the picture, but for those of the groups.
const AROUND: u16 = 6;

/// Draws it with the rank in focus chosen; where ranks stand for others, the first of those.
pub fn draw(data: &RunData, view: &PanelView<'_>, pen: &mut Pen<'_>) {
    let mut rest = Cut::of(pen);
    let Some(cube) = &data.prepared.asked.cube else {
        let say = |inside: &mut Pen<'_>| {
            _ = paragraph(inside, 0, "The ranks of this run lie along one axis at most: there is one group.", Role::Text);
        };
        return pane(pen, rest.0, "Mesh", view.focused, say);
    };
    let run = data.run();
    let rank = run.program.whole(view.focus);
    let parties = cube.parties(&run, rank);
    let wanted = u16::try_from(parties.len()).unwrap_or(u16::MAX).saturating_add(AROUND);
    let room = rest.0.height.saturating_sub(PICTURE);
    // Heads without a group below them would say nothing.
    let below = rest.bottom(if room + 2 < wanted { 0 } else { wanted.min(room) });
    let name = "Mesh  ";
    let room = usize::from(rest.0.width).saturating_sub(FRAME + name.len());
    let title = format!("{name}{}", cube.shape(room));
    pane(pen, rest.0, &title, view.focused, |inside| picture(cube, rank, inside));
    if below.height == 0 {
        return;
    }
    let title = format!("Groups  of {}", cube.place(rank));
    pane(pen, below, &title, false, |inside| {
        let lines: Vec<Line> = parties.iter().map(line).collect();
        let y = table(inside, 0, &HEADS, &lines);
        let fold = run.program.fold();
        let others = if fold > 1 { format!("{rank} is followed for {fold} ranks that do the same. ") } else { String::new() };
        let meaning = "A letter behind a rank is the axis along which the rank in brackets meets it.";
        paragraph(inside, y + 1, &format!("{others}{meaning}"), Role::Quiet);
    });
}

const HEADS: [Head; 6] = {
    let [group, ranks, over, sent, work, members] = Party::HEADS;
    [left(group), right(ranks), left(over), right(sent), left(work), left(members)]
};

fn line(party: &Party) -> Line {
    Line { role: Role::Text, cells: party.cells(MOST_NAMED).into() }
}

fn picture(cube: &Cube, rank: Rank, pen: &mut Pen<'_>) {
    let room = (usize::from(pen.width().saturating_sub(2)), usize::from(pen.height()));
    for (y, line) in (0..pen.height()).zip(cube.picture(rank, room)) {
        for cell in line {
            let role = match cell.mark {
                Mark::Label => Role::Quiet,
                Mark::Chosen => Role::Selected,
                Mark::Along(_) => Role::Strong,
                Mark::Other => Role::Text,
            };
            pen.say(1 + u16::try_from(cell.x).unwrap_or(u16::MAX), y, &cell.text, role);
        }
    }
}

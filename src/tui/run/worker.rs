//! The worker: makes runs, reads values and writes files on a thread of its own. Whatever goes wrong there becomes a message.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use super::super::data::RunData;
use super::super::model::{Look, Setup};
use super::super::update::{Effect, Message};
use super::{files, values::values};
use crate::base::Bytes;
use crate::lab::{self, Lab};
use crate::observe::export::{Format, export};
use crate::program::plan::Plan;
use crate::scenario::{Scenario, merged};

/// A run with its request's number.
type Made = (u64, lab::Run, Arc<RunData>);

/// Makes runs and remembers the last one, and the one before it until values of the last are looked at: it may still be the one shown.
#[derive(Default)]
pub struct Worker {
    lab: Lab,
    run: Option<Made>,
    before: Option<Made>,
    /// What this machine has: real values that need more are refused before anything is allocated. `None`: unknown.
    memory: Option<Bytes>,
}

/// Starts the worker's thread. It ends when the other end of the returned channel does.
#[must_use]
pub fn start(memory: Option<Bytes>, messages: Sender<Message>) -> Sender<Effect> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || work(memory, &receiver, &messages));
    sender
}

fn work(memory: Option<Bytes>, effects: &Receiver<Effect>, messages: &Sender<Message>) {
    let mut worker = Worker::new(memory);
    while let Ok(first) = effects.recv() {
        for effect in wanted(std::iter::once(first).chain(effects.try_iter()).collect()) {
            if let Some(message) = worker.answer(effect)
                && messages.send(message).is_err()
            {
                return;
            }
        }
    }
}

/// Without the runs and looks that a later one, or giving them up, has made pointless.
fn wanted(effects: Vec<Effect>) -> Vec<Effect> {
    let is_run = |effect: &Effect| matches!(effect, Effect::Run { .. });
    let ends_runs = |effect: &Effect| is_run(effect) || matches!(effect, Effect::Abandon { .. });
    let is_look = |effect: &Effect| matches!(effect, Effect::Look(_));
    let last_run = effects.iter().rposition(ends_runs);
    let last_look = effects.iter().rposition(is_look);
    let keep = |(place, effect): (usize, Effect)| {
        let late = if is_run(&effect) { last_run } else { last_look };
        (!(is_run(&effect) || is_look(&effect)) || Some(place) == late).then_some(effect)
    };
    effects.into_iter().enumerate().filter_map(keep).collect()
}

impl Worker {
    /// A worker that has run nothing yet.
    #[must_use]
    pub fn new(memory: Option<Bytes>) -> Self {
        Self { memory, ..Self::default() }
    }

    /// Does what is asked, and says what came of it. A panic is an answer, too; after it the worker starts afresh.
    pub fn answer(&mut self, effect: Effect) -> Option<Message> {
        let number = if let Effect::Run { number, .. } = &effect { Some(*number) } else { None };
        catch_unwind(AssertUnwindSafe(|| self.perform(effect))).unwrap_or_else(|panic| {
            *self = Self::new(self.memory);
            let text = format!("the lab failed on this, which is a fault of ranklab: {}", words(&*panic));
            Some(number.map_or_else(|| Message::Say(text.clone()), |number| Message::Ran(number, Err(text.clone()))))
        })
    }

    fn perform(&mut self, effect: Effect) -> Option<Message> {
        match effect {
            Effect::Run { number, setup } => Some(Message::Ran(number, self.run(number, &setup))),
            Effect::Abandon { shown } => {
                self.abandon(shown);
                None
            }
            Effect::Look(look) => self.look(look),
            Effect::Export { format } => Some(Message::Say(self.export(format))),
            Effect::Save { file, setup } => Some(Message::Say(save(&file, &setup))),
            Effect::SavePlan { file, plan, overwrite } => Some(save_plan(file, plan, overwrite)),
            Effect::CrashLab => panic!("asked to, by the command `crash-lab`"),
            Effect::Copy { .. } | Effect::Redraw | Effect::Suspend | Effect::Quit { .. } => None,
        }
    }

    fn run(&mut self, number: u64, setup: &Setup) -> Result<Arc<RunData>, String> {
        let scenario = Scenario::parse(&setup.name, &setup.text, &setup.overrides());
        let mut scenario = scenario.map_err(|problems| problems.render(false, WIDTH))?;
        if let Some(plan) = &setup.plan {
            scenario = scenario.with_plan(Arc::clone(plan));
        }
        if let Some(memory) = self.memory {
            scenario.fits(&setup.name, memory).map_err(|problems| problems.render(false, WIDTH))?;
        }
        let run = self.lab.run(&scenario).map_err(|error| error.to_string())?;
        let data = Arc::new(RunData::new(&run));
        self.before = self.run.replace((number, run, Arc::clone(&data)));
        Ok(data)
    }

    /// Back to the run that is shown; if it is gone, there is none: another one's values would be lies.
    fn abandon(&mut self, shown: u64) {
        let made = [self.run.take(), self.before.take()];
        self.run = made.into_iter().flatten().find(|made| made.0 == shown);
    }

    fn look(&mut self, look: Look) -> Option<Message> {
        if self.run.as_ref().is_some_and(|made| made.0 == look.number) {
            self.before = None;
        }
        let (_, run, _) = self.run.as_mut().filter(|(number, ..)| *number == look.number)?;
        match run.session.seek(look.event).and_then(|()| values(&run.session, look)) {
            Ok(values) => Some(Message::Values(look, Arc::new(values))),
            Err(error) => Some(Message::Say(format!("a kernel failed: {error}"))),
        }
    }

    fn export(&self, format: Format) -> String {
        let Some((_, run, data)) = &self.run else { return "there is no run to export".to_owned() };
        let text = export(&data.observed(), run.given(), format);
        files::write_somewhere(&run.scenario.title, format, &text)
    }
}

/// Columns of a problem's text.
const WIDTH: usize = 88;

fn save(file: &str, setup: &Setup) -> String {
    match merged(&setup.name, &setup.text, &setup.overrides()) {
        Ok(text) => files::write_new(file, &text),
        Err(problems) => problems.render(false, WIDTH),
    }
}

/// A sheet of `plan`. A file that exists is replaced only if the learner has said so.
fn save_plan(file: String, plan: Arc<Plan>, overwrite: bool) -> Message {
    match files::write_plan(&file, &plan.to_string(), overwrite) {
        Some(said) => Message::Say(said),
        None => Message::Exists(file, plan),
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(text: &str) -> Setup {
        Setup { name: "test.toml".to_owned(), text: text.into(), ..Setup::default() }
    }

    #[test]
    fn a_panic_is_an_answer_and_the_next_run_works() {
        let mut worker = Worker::new(None);
        let Some(Message::Say(text)) = worker.answer(Effect::CrashLab) else { panic!("an answer") };
        assert!(text.contains("crash-lab"), "{text}");
        let run = Effect::Run { number: 7, setup: setup("[collective]\nranks = 3\nbytes = 12\n") };
        assert!(matches!(worker.answer(run), Some(Message::Ran(7, Ok(data))) if data.ranks() == 3));
    }

    #[test]
    fn problems_and_too_large_models_are_answers() {
        let mut worker = Worker::new(Some(Bytes(8 << 20)));
        let mut check = |text: &str, expected: &str| {
            let Some(Message::Ran(1, Err(problem))) = worker.answer(Effect::Run { number: 1, setup: setup(text) }) else {
                panic!("a problem with {text}")
            };
            assert!(problem.contains(expected), "{problem}");
        };
        check("[parallel]\npipeline = 0\n", "too small");
        check("[model]\npreset = \"gpt2\"\n", "real values would take");
        check(
            "[[trouble]]\nkind = \"skip-op\"\nop = \"0F999\"\n[parallel]\npipeline = 2\n[numerics]\nvalues = \"shape\"\n",
            "no op",
        );
    }

    #[test]
    fn of_many_requests_only_the_last_of_a_kind_is_answered() {
        let look = |event| Effect::Look(Look { number: 1, event, rank: crate::base::Rank(0) });
        let run = |number| Effect::Run { number, setup: Setup::default() };
        let kept = wanted(vec![run(1), look(1), run(2), Effect::CrashLab, look(2)]);
        assert_eq!(kept, [run(2), Effect::CrashLab, look(2)]);
        let abandon = Effect::Abandon { shown: 1 };
        assert_eq!(wanted(vec![run(2), abandon.clone()]), std::slice::from_ref(&abandon));
        assert_eq!(wanted(vec![run(2), abandon.clone(), run(3)]), [abandon, run(3)]);
    }
}

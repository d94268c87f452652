//! From the model and a message to the next model, and to what the world outside should do. No terminal, no clock, no engine.

pub mod compare;
pub mod edit;
pub mod overlay;
mod jumps;
mod pages;
mod rows;
mod run;
pub mod runs;
pub mod timeline;
mod why;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::observe::export::Format;
use crate::program::plan::Plan;

use super::commands::{self, Command, Group, Place};
use super::data::{RunData, Values};
use super::keys::{Key, Name};
use super::layout::Class;
use super::model::{Look, Model, Overlay, Prefix, Setup, View};

/// What happens to the screen.
#[derive(Debug)]
pub enum Message {
    /// A key was pressed.
    Key(Key),
    /// A text was pasted.
    Paste(String),
    /// The terminal has a new size: columns, rows.
    Resize(u16, u16),
    /// Someone looks at the terminal, or no longer does.
    Focus(bool),
    /// So much time passed while playing.
    Elapsed(Duration),
    /// A run that was asked for: its number, and the run or what is wrong with its scenario.
    Ran(u64, Result<Arc<RunData>, String>),
    /// Values that were asked for.
    Values(Look, Arc<Values>),
    /// Something to tell the learner.
    Say(String),
    /// A plan was not written: the file exists.
    Exists(String, Arc<Plan>),
    /// The program is to be stopped, as by `kill -TSTP`.
    Suspend,
    /// The program was stopped and goes on.
    Continued,
    /// The program is to end, by this signal.
    Terminate(i32),
}

/// What the world outside should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Compile and run a scenario.
    Run {
        /// The request's number: what answers it carries the same.
        number: u64,
        /// What to run.
        setup: Setup,
    },
    /// A run that was asked for is not wanted any more.
    Abandon {
        /// The number of the run that stays on the screen.
        shown: u64,
    },
    /// Read the values of a rank at a position of a run.
    Look(Look),
    /// Write the run to a new file.
    Export {
        /// The form.
        format: Format,
    },
    /// Write a scenario to a new file.
    Save {
        /// The file.
        file: String,
        /// The scenario.
        setup: Setup,
    },
    /// Write a plan as a sheet.
    SavePlan {
        /// The file.
        file: String,
        /// The plan.
        plan: Arc<Plan>,
        /// The learner has said that a file which is there may be replaced.
        overwrite: bool,
    },
    /// Panic where runs are made: does the screen survive?
    CrashLab,
    /// Put a text on the clipboard.
    Copy {
        /// The text.
        text: String,
    },
    /// Draw everything again.
    Redraw,
    /// Give the terminal back and stop until continued.
    Suspend,
    /// End.
    Quit {
        /// Leave the last frame in the shell.
        keep_frame: bool,
    },
}

/// Takes one message into account.
pub fn update(model: &mut Model, message: Message) -> Option<Effect> {
    model.dirty = true;
    match message {
        Message::Key(key) => {
            let effect = press(model, key);
            overlay::present_next(model);
            return effect;
        }
        Message::Paste(text) => overlay::paste(model, &text),
        Message::Resize(width, height) => {
            model.size = (width, height);
            timeline::keep_in_view(model);
            if model.playing() {
                timeline::follow_playhead(model);
            }
        }
        Message::Elapsed(time) => run::play(model, time),
        Message::Ran(number, outcome) => runs::ran(model, number, outcome),
        Message::Values(look, values) if model.looked == Some(look) => model.values = Some(values),
        Message::Say(text) => model.message = text,
        Message::Exists(file, plan) => overlay::present(model, Overlay::Overwrite { file, plan }),
        Message::Suspend => return Some(Effect::Suspend),
        Message::Focus(_) | Message::Values(..) => model.dirty = false,
        Message::Continued | Message::Terminate(_) => {}
    }
    None
}

/// The values that the screen shows and does not have yet. Asked after all messages that have come, so that of many steps only the last
/// is looked at; while the run plays nobody could read them.
pub fn look(model: &mut Model) -> Option<Effect> {
    let look = Look { number: model.run.number, event: model.now.event, rank: model.focus_rank() };
    let wanted = model.run.data.has_values && model.view != View::Lessons && !model.playing();
    if !wanted || model.looked == Some(look) {
        return None;
    }
    model.looked = Some(look);
    model.values = None;
    Some(Effect::Look(look))
}

/// A key goes to what is open over the view, else to the second half of a two-key command, else to the table.
fn press(model: &mut Model, key: Key) -> Option<Effect> {
    if key == Key::Ctrl('c') {
        return execute(model, Command::Interrupt, "");
    }
    if Class::of(model.size) == Class::TooSmall && !works_unseen(model, key) {
        return None;
    }
    if model.overlay != Overlay::None {
        return overlay::press(model, key);
    }
    model.message.clear();
    // A typed command begins here whatever was pressed before, or its letters would be keys.
    match model.prefix.take().filter(|_| key != Key::Char(':')) {
        Some(Prefix::Table(first)) => bound(model, Some(first), key),
        Some(mark) => {
            run::mark(model, mark, key);
            None
        }
        None if starts_prefix(model, key) => None,
        None => bound(model, None, key),
    }
}

/// Whether a key does the same where nothing can be shown: it leaves. Whatever else it would do, nobody would see.
fn works_unseen(model: &Model, key: Key) -> bool {
    if model.overlay != Overlay::None {
        return key == Key::Named(Name::Esc);
    }
    let leaves = [Command::Back, Command::QuitKeepingFrame, Command::Suspend, Command::Redraw];
    commands::lookup(model.view, None, key).is_some_and(|command| leaves.contains(&command))
}

fn starts_prefix(model: &mut Model, key: Key) -> bool {
    let Key::Char(character) = key else { return false };
    let starts = commands::is_prefix(model.view, character);
    if starts {
        model.prefix = Some(Prefix::Table(character));
    }
    starts
}

fn bound(model: &mut Model, prefix: Option<char>, key: Key) -> Option<Effect> {
    match commands::lookup(model.view, prefix, key) {
        Some(command) => execute(model, command, ""),
        None if key == Key::Named(Name::Esc) => {
            model.maximised = false;
            None
        }
        None => {
            let first = prefix.map(|first| format!("{first} ")).unwrap_or_default();
            model.say(format!("{first}{key} does nothing here; ? lists the keys"));
            None
        }
    }
}

/// Does what a command says. `argument` is what stood behind its name in the palette; empty for a key.
///
/// # Panics
/// By the command `crash`, on purpose.
pub fn execute(model: &mut Model, command: Command, argument: &str) -> Option<Effect> {
    if commands::binding(command).place == Place::Run && model.view == View::Lessons {
        model.say("open a lesson first");
        return None;
    }
    if loses_plan(model, command) && model.warned != Some(command) {
        model.warned = Some(command);
        model.say("the edited plan goes with that: W saves it to a file first; the same key again drops it");
        return None;
    }
    model.warned = None;
    if needs_run(command) && model.asked.is_some() && model.run.data.ranks() == 0 {
        model.say("still computing ...");
        return None;
    }
    match command {
        Command::Palette
        | Command::Help
        | Command::Find
        | Command::Knobs
        | Command::ListBreaks
        | Command::Export
        | Command::Why => {
            overlay::open(model, command);
            None
        }
        Command::GoToEvent | Command::GoToTime | Command::GoToRank | Command::Set | Command::Save | Command::SavePlan
            if argument.is_empty() =>
        {
            let text = format!("{} ", commands::binding(command).name);
            model.overlay = Overlay::Palette { text, selected: 0 };
            None
        }
        Command::SavePlan => save_plan(model, argument),
        Command::Save if model.setup.plan.is_some() => {
            model.say("the plan is edited: save-plan writes it to a sheet, which `pipeline.csv` names");
            None
        }
        Command::Save => Some(Effect::Save { file: argument.to_owned(), setup: model.setup.clone() }),
        Command::Set => set(model, argument),
        Command::Rerun => runs::again(model),
        Command::Reset => runs::reset(model),
        Command::CrashLab => Some(Effect::CrashLab),
        Command::SetMark => prefix(model, Prefix::SetMark),
        Command::GoToMark => prefix(model, Prefix::GoToMark),
        Command::Theme => theme(model, argument),
        Command::Redraw => Some(Effect::Redraw),
        Command::Suspend => Some(Effect::Suspend),
        Command::QuitKeepingFrame => Some(Effect::Quit { keep_frame: true }),
        Command::Back => back(model),
        Command::Interrupt => interrupt(model),
        Command::Copy => overlay::copy(model),
        Command::Crash => panic!("asked to, by the command `crash`"),
        Command::Show(View::Edit) => {
            edit::open(model);
            timeline::keep_in_view(model);
            None
        }
        Command::Show(view) => {
            model.view = view;
            timeline::keep_in_view(model);
            None
        }
        _ => match in_turn(model, command, argument) {
            ControlFlow::Break(effect) => effect,
            ControlFlow::Continue(()) => None,
        },
    }
}

/// Any key of the scenario takes a value, as `--set` of the command line has it.
fn set(model: &mut Model, argument: &str) -> Option<Effect> {
    let Some((key, value)) = argument.split_once('=') else {
        model.say("set KEY=VALUE, such as set batch.micro_batches=4; `ranklab show scenario` lists the keys");
        return None;
    };
    Some(runs::turn(model, key.trim(), value.trim()))
}

/// Whether a command drops the plan that the learner has edited.
fn loses_plan(model: &Model, command: Command) -> bool {
    model.setup.plan.is_some()
        && match command {
            Command::Open => model.view == View::Lessons && !pages::is_open(model),
            Command::NextPage | Command::PreviousPage => runs::turn_changes_run(model, command == Command::NextPage),
            Command::Back => model.view == View::Lessons,
            Command::Interrupt => model.asked.is_none() && !model.player.on,
            Command::QuitKeepingFrame => true,
            _ => false,
        }
}

/// Whether a command steps or moves about in a run.
fn needs_run(command: Command) -> bool {
    let binding = commands::binding(command);
    binding.place == Place::Run && matches!(binding.group, Group::Run | Group::Move) && command != Command::Rerun
}

fn in_turn(model: &mut Model, command: Command, argument: &str) -> ControlFlow<Option<Effect>> {
    edit::execute(model, command, argument)?;
    compare::execute(model, command)?;
    run::execute(model, command, argument)?;
    jumps::execute(model, command)?;
    timeline::execute(model, command, argument)?;
    pages::execute(model, command)
}

/// The plan that is edited goes to a file, if nothing is missing from it.
fn save_plan(model: &mut Model, file: &str) -> Option<Effect> {
    let editor = &model.editing.as_ref()?.editor;
    if editor.plan().is_two_way() {
        model.say("each stage stands on two ranks, and a sheet has each on one: this plan runs here alone");
        return None;
    }
    if editor.is_whole() {
        return Some(Effect::SavePlan { file: file.to_owned(), plan: Arc::new(editor.plan().clone()), overwrite: false });
    }
    model.say("cells are out of the plan: a sheet without them would not run; p puts them back");
    None
}

fn prefix(model: &mut Model, prefix: Prefix) -> Option<Effect> {
    model.prefix = Some(prefix);
    None
}

fn theme(model: &mut Model, name: &str) -> Option<Effect> {
    use super::theme::Palette;
    match Palette::named(name) {
        Some(palette) => model.theme.palette = palette,
        None if name.is_empty() => model.theme.palette = model.theme.palette.next(),
        None => {
            model.say(format!("no theme {name}; there are dark, light, ansi16, mono"));
            return None;
        }
    }
    model.say(format!("theme {}", model.theme.palette.name()));
    None
}

/// One step out: from a maximised pane to all panes, from a view to the lesson, from the lesson to the list, and out.
fn back(model: &mut Model) -> Option<Effect> {
    if model.maximised {
        model.maximised = false;
        return None;
    }
    model.view = match model.view {
        View::Lessons => return Some(Effect::Quit { keep_frame: false }),
        View::Lesson => {
            model.player.on = false;
            View::Lessons
        }
        _ => View::Lesson,
    };
    None
}

/// What was asked for is abandoned, what plays stops; where neither is, the screen ends.
fn interrupt(model: &mut Model) -> Option<Effect> {
    if model.asked.is_some() {
        return Some(runs::abandon(model));
    }
    if model.player.on {
        model.player.on = false;
        return None;
    }
    Some(Effect::Quit { keep_frame: false })
}

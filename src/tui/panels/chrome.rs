//! The lines around the panes: title, tabs, transport, scrubber, message, keys.

use ratatui::layout::Rect;

use super::{facts, text};
use crate::base::units::Ticks;
use crate::program::trace::Outcome;
use crate::tui::commands::{self, Binding, Command};
use crate::tui::keys::Key;
use crate::tui::layout::{Class, Layout};
use crate::tui::lesson::{Action, actions};
use crate::tui::model::{Landing, Model, Pane, View};
use crate::tui::pen::{Pen, width_of};
use crate::tui::theme::Role;
use crate::tui::update::timeline::window;

/// The first line: where the learner is; what the run is.
pub fn title(model: &Model, pen: &mut Pen<'_>) {
    let x = pen.say(1, 0, "ranklab", Role::Strong);
    let x = pen.say(x, 0, " | ", Role::Quiet);
    if model.view == View::Lessons {
        let x = pen.say(x, 0, "Learn, see, break and debug distributed training", Role::Text);
        let lessons = format!("{} lessons", model.shelf.contents.lessons().len());
        return pen.say_right(x + 2, 0, 1, &lessons, Role::Quiet);
    }
    let own = model.lesson.lesson.number == 0 && !model.run.data.title.is_empty();
    let heading = if own { model.run.data.title.clone() } else { model.lesson.heading() };
    let x = pen.say(x, 0, &heading, Role::Text);
    let mut facts = facts::facts(&model.run.data);
    if is_asked(model) {
        facts.truncate(facts::BEFORE_NUMBERS);
    }
    if model.run.setup.plan.is_some() {
        facts.insert(0, "[EDITED]".to_owned());
    }
    if is_before(model) {
        facts = vec!["[RUNNING]".to_owned()];
    } else if model.asked.is_some() && model.run.number > 0 {
        facts.insert(0, "[RUNNING]".to_owned());
    }
    // What does not fit goes from the right: the clock's badge is the last to leave.
    while !facts.is_empty() && x + 2 + width_of(&facts.join("  ")) + 1 > pen.width() {
        facts.pop();
    }
    pen.say_right(x + 2, 0, 1, &facts.join("  "), Role::Quiet);
}

/// The views and their keys, the present one in brackets.
pub fn tabs(model: &Model, class: Class, pen: &mut Pen<'_>) {
    let mut x = 1;
    let has_mesh = model.run.data.prepared.asked.cube.is_some();
    for view in View::OF_A_RUN.into_iter().filter(|&view| view != View::Mesh || has_mesh) {
        let (long, short) = view.names();
        let key = commands::binding(Command::Show(view)).shown_key();
        let name = if class >= Class::Large { format!("{key} {long}") } else { format!("{key}{short}") };
        if view == model.view {
            x = pen.say(x, 0, &format!("[{name}]"), Role::Strong);
        } else {
            x = pen.say(x, 0, &format!(" {name} "), Role::Quiet);
        }
    }
    let hints = if class >= Class::Large {
        hint_line([Command::Palette, Command::Find, Command::Help])
    } else {
        hint_line([Command::Help])
    };
    pen.say_right(x + 2, 0, 1, &hints, Role::Quiet);
}

fn hint_line<const N: usize>(commands: [Command; N]) -> String {
    let hint = |command| {
        let binding = commands::binding(command);
        format!("{} {}", binding.shown_key(), binding.hint)
    };
    commands.map(hint).join("  ")
}

/// Where in the run: state, event, time; then the scrubber, on a line of its own where there is room. Where messages have no line of their
/// own, one takes the scrubber's place.
pub fn transport(model: &Model, pen: &mut Pen<'_>) {
    let data = &model.run.data;
    let (sign, state) = state(model);
    let two_lines = pen.height() > 1;
    let x = pen.say(1, 0, &format!("{sign} {state}"), Role::Strong);
    let time = data.clock().show(model.now.time);
    let events = format!("{}/{}", model.now.event, data.events());
    if two_lines {
        let speed = model.player.speed_text();
        let x = pen.say(x, 0, &format!(" x{speed}   event {events}   t={time}{}", next_stop(model)), Role::Text);
        let layout = Layout::of(model);
        if layout.timeline().is_some() {
            let width = layout.axis_width(data);
            pen.say_right(x + 2, 0, 1, &window(model, width).scale_text(data.clock()), Role::Quiet);
        }
        let mut line = pen.part(Rect::new(0, 1, pen.width(), 1));
        scrubber(model, 1, &mut line);
    } else {
        let x = pen.say(x, 0, &format!(" ev {events} t={time}"), Role::Text);
        if Layout::of(model).message.height > 0 || model.message.is_empty() {
            scrubber(model, x + 2, pen);
        } else {
            message(model, &mut pen.part(Rect::new(x + 1, 0, pen.width().saturating_sub(x + 1), 1)));
        }
    }
}

fn state(model: &Model) -> (&'static str, &'static str) {
    let data = &model.run.data;
    let at_the_end = model.now.event == data.events();
    match (model.playing(), model.now.event) {
        (true, _) => (">>", "PLAYING"),
        (false, _) if at_the_end && data.record.trace.outcome != Outcome::Completed => ("!!", "STUCK"),
        (false, 0) => ("|>", "START"),
        (false, _) if at_the_end => ("[]", "END"),
        (false, _) => ("|>", "PAUSED"),
    }
}

fn next_stop(model: &Model) -> String {
    model.breaks.next(model.now.event).map_or_else(String::new, |(event, stop)| {
        let time = model.run.data.clock().show(model.run.data.position(event).time);
        format!("   next stop: {} (ev {event}, t={time})", stop.when)
    })
}

/// The run as one line: breakpoints, alerts, now.
fn scrubber(model: &Model, from: u16, pen: &mut Pen<'_>) {
    let data = &model.run.data;
    let end = data.clock().show(data.end());
    let x = pen.say(from, 0, "0 ", Role::Quiet);
    let right = pen.width().saturating_sub(width_of(&end) + 3);
    if right < x + 8 {
        return;
    }
    let bar = pen.tier.bar();
    let quiet = pen.theme.style(Role::Quiet);
    pen.put(x, 0, bar, quiet);
    for column in x + 1..right {
        pen.put(column, 0, pen.tier.axis(false), quiet);
    }
    pen.put(right, 0, bar, quiet);
    pen.say(right + 2, 0, &end, Role::Quiet);
    let place = |time: Ticks| x + 1 + share(time.0, data.end().0, right - x - 2);
    let mark = pen.theme.style(Role::Mark);
    for alert in &data.alerts {
        pen.put(place(alert.time), 0, '!', mark);
    }
    // One mark a column: an op by its verb may be met a hundred thousand times.
    for mut hits in model.breaks.list().iter().map(|one| one.hits.as_slice()) {
        while let Some(&event) = hits.first() {
            let column = place(data.position(event).time);
            pen.put(column, 0, '*', mark);
            hits = &hits[hits.partition_point(|&hit| place(data.position(hit).time) <= column)..];
        }
    }
    pen.put(place(model.now.time), 0, pen.tier.playhead(), mark);
}

/// `part` of `whole` in `columns` columns.
fn share(part: u64, whole: u64, columns: u16) -> u16 {
    let column = u128::from(part.min(whole)) * u128::from(columns) / u128::from(whole.max(1));
    u16::try_from(column).unwrap_or(columns)
}

/// The message to the learner; while there is none, how the run ended.
pub fn message(model: &Model, pen: &mut Pen<'_>) {
    let ending = model.message.is_empty() && model.run.data.ranks() > 0 && model.view != View::Lessons;
    let room = pen.width().saturating_sub(2);
    if ending && is_before(model) {
        pen.say(1, 0, &pen.cut("still running: the picture is that of the run before", room), Role::Quiet);
    } else if ending && is_asked(model) {
        pen.say(1, 0, &pen.cut("the numbers of this run come with the answer: Enter", room), Role::Quiet);
    } else if ending {
        pen.say(1, 0, &whole_parts(&facts::sentence(&model.run.data), room, pen), Role::Quiet);
    } else {
        pen.say(1, 0, &whole_parts(briefly(&model.message, room), room, pen), Role::Text);
    }
}

/// What a turned knob led to: in little room without the loss, then with the last word of its name, or without it. The learner knows what
/// was turned.
fn briefly(message: &str, room: u16) -> &str {
    let Some((turned, answer)) = message.split_once(": ").filter(|(turned, _)| turned.contains(" = ")) else { return message };
    let name = turned.split(" = ").next().unwrap_or_default();
    let (start, end) = (name.rfind('.').map_or(0, |dot| dot + 1), message.rfind(", loss ").unwrap_or(message.len()));
    [message, &message[..end], &message[start..end]].into_iter().find(|text| width_of(text) <= room).unwrap_or(answer)
}

/// As many parts of a sentence as fit: what does not goes whole, as half a number is none.
fn whole_parts(sentence: &str, room: u16, pen: &Pen<'_>) -> String {
    let mut shown = sentence;
    while width_of(shown) > room {
        let Some(end) = shown.rfind(", ") else { return pen.cut(shown, room) };
        shown = &shown[..end];
    }
    shown.to_owned()
}

/// The keys that fit, those of the focused pane first; those of what lies over the view, if anything does.
pub fn keys(model: &Model, layout: &Layout, pen: &mut Pen<'_>) {
    let [help, [back, mut out]] = [Command::Help, Command::Back].map(|command| item(commands::binding(command)));
    if model.view == View::Lessons {
        "quit".clone_into(&mut out);
    }
    let last = [help, [back, out]];
    let reserved: u16 = last.iter().map(|item| width_of(&item.join(" ")) + 2).sum();
    if let Some(keys) = model.overlay.keys() {
        keys.iter().fold(1, |x, (key, word)| key_and_word(pen, x, key, word));
        return;
    }
    let pane = layout.focused(model).map(|placed| placed.pane);
    let mut x = 1;
    let idle = model.view == View::Lesson && is_idle(model);
    for &command in footer(model.view, pane).iter().filter(|&&command| !(idle && command == Command::Open)) {
        let [key, mut word] = item(commands::binding(command));
        if let Some(other) = word_here(model, pane, command) {
            other.clone_into(&mut word);
        }
        if x + width_of(&key) + 1 + width_of(&word) + 2 + reserved > pen.width() {
            continue;
        }
        x = key_and_word(pen, x, &key, &word);
    }
    for [key, word] in last {
        x = key_and_word(pen, x, &key, &word);
    }
}

/// What a key is for in this view and pane, where that is less than everything it does.
fn word_here(model: &Model, pane: Option<Pane>, command: Command) -> Option<&'static str> {
    let view = model.view;
    match command {
        Command::Open if view == View::Lesson => Some(match next_action(model) {
            Some(Action::Set { .. }) if text::next_is_seen(model) => "try",
            Some(Action::Set { .. }) => "to TRY",
            Some(Action::Answer) if text::next_is_seen(model) => "answer",
            Some(Action::Answer) => "to ASK",
            None => "go on",
        }),
        Command::Open if view != View::Lessons => Some("go to it"),
        Command::Down => match pane {
            Some(Pane::Debugger | Pane::Memory | Pane::Waits | Pane::Mesh) => Some("rank"),
            Some(Pane::Links) => Some("link"),
            Some(Pane::Metrics) => Some("gap"),
            _ => None,
        },
        Command::NextPane if view == View::Lesson && pane != Some(Pane::Text) => Some("text"),
        _ => None,
    }
}

/// Whether Enter has nothing to do: on a page of which all is done, on the last page once nothing is left on it, and where there is no page.
fn is_idle(model: &Model) -> bool {
    let is_last = model.lesson.page + 1 >= model.lesson.lesson.pages.len();
    next_action(model).is_none() && (is_last || model.lesson.taken() > 0)
}

/// Whether the picture is still that of another page's run: nothing of it holds here.
fn is_before(model: &Model) -> bool {
    model.run.number > 0 && model.asked.is_some_and(|asked| asked.landing == Landing::Page)
}

/// What Enter does on the page of the lesson.
fn next_action(model: &Model) -> Option<Action<'_>> {
    actions(model.lesson.page()?).nth(model.lesson.taken())
}

/// Whether the page asks something that is not answered yet: whoever bets does not see the result beside the question.
fn is_asked(model: &Model) -> bool {
    model.view == View::Lesson && !model.setup.is_turned() && next_action(model) == Some(Action::Answer)
}

fn key_and_word(pen: &mut Pen<'_>, x: u16, key: &str, word: &str) -> u16 {
    let x = pen.say(x, 0, key, Role::Strong);
    pen.say(x + 1, 0, word, Role::Quiet) + 2
}

/// A command's key, or its pair's keys, and its word: `n/N`, `step`.
fn item(binding: &Binding) -> [String; 2] {
    let mut keys = binding.shown_key().to_owned();
    if let Some((other, _)) = binding.pair {
        let other = commands::binding(other).shown_key();
        let short = |key: &str| Key::parse(key).is_some_and(|_| key.chars().count() == 1);
        if short(&keys) && short(other) {
            keys = format!("{keys}/{other}");
        }
    }
    [keys, binding.hint.to_owned()]
}

/// What is worth a place in the keys' line, the most useful first.
fn footer(view: View, pane: Option<Pane>) -> &'static [Command] {
    match (view, pane) {
        (View::Lessons, _) => &[Command::Down, Command::Open, Command::Theme],
        (View::Lesson, _) | (_, Some(Pane::Text)) => &[
            Command::NextPage,
            Command::NextPane,
            Command::Open,
            Command::Knobs,
            Command::NextOp,
            Command::Play,
            Command::NextEvent,
            Command::Maximise,
            Command::Continue,
            Command::Copy,
        ],
        (View::Edit, Some(Pane::Plan)) => &[
            Command::MoveCellLeft,
            Command::TakeCell,
            Command::Undo,
            Command::SplitCell,
            Command::SavePlan,
            Command::Why,
            Command::NextPane,
            Command::Knobs,
            Command::Maximise,
        ],
        (View::Compare, _) => &[
            Command::Pin,
            Command::GoToDifference,
            Command::Link,
            Command::Down,
            Command::Knobs,
            Command::ZoomIn,
            Command::NextInLane,
            Command::Maximise,
        ],
        (View::Timeline | View::Edit, _) => &[
            Command::Play,
            Command::NextOp,
            Command::NextEvent,
            Command::Continue,
            Command::Break,
            Command::ZoomIn,
            Command::Open,
            Command::NextInLane,
            Command::Knobs,
            Command::NextPage,
            Command::Maximise,
            Command::Export,
        ],
        _ => &[
            Command::Down,
            Command::Open,
            Command::NextOp,
            Command::NextEvent,
            Command::Continue,
            Command::Play,
            Command::Knobs,
            Command::NextPage,
            Command::Break,
            Command::Maximise,
            Command::Export,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::model::Player;

    #[test]
    fn a_share_stays_within_its_columns() {
        let check = |part, whole, columns, expected| assert_eq!(share(part, whole, columns), expected);
        check(0, 33, 66, 0);
        check(33, 33, 66, 66);
        check(99, 33, 66, 66);
        check(11, 33, 66, 22);
        check(5, 0, 66, 0);
    }

    #[test]
    fn speeds_are_powers_of_two() {
        let text = |speed| Player { speed, ..Player::default() }.speed_text();
        assert_eq!(["1/8", "1/2", "1", "4"], [-3, -1, 0, 2].map(text).each_ref().map(String::as_str));
    }

    #[test]
    fn the_answer_stays_where_the_question_does_not_fit() {
        let message = "batch.micro_batches = 16: 57u a step, bubble 15.8 %, equals one device bit for bit";
        let check = |room, expected: &str| assert_eq!(briefly(message, room), expected);
        check(90, message);
        check(80, "micro_batches = 16: 57u a step, bubble 15.8 %, equals one device bit for bit");
        check(70, "57u a step, bubble 15.8 %, equals one device bit for bit");
        let with_loss = format!("{message}, loss 5.56 to 5.42");
        assert_eq!([110, 90].map(|room| briefly(&with_loss, room)), [with_loss.as_str(), message]);
        assert_eq!(briefly("wrong: at r0 `F0`", 5), "wrong: at r0 `F0`");
    }
}

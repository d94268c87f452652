//! The one table of commands: key, name, help. It drives dispatch, the footer, the help page and the `:` palette.

use super::keys::Key;
use super::model::View;

/// What a learner can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table below says what each does")]
pub enum Command {
    Play,
    Slower,
    Faster,
    NextOp,
    PreviousOp,
    NextEvent,
    PreviousEvent,
    Finish,
    Begin,
    Continue,
    Reverse,
    RunToCursor,
    Rewind,
    Rerun,
    Break,
    ListBreaks,
    Up,
    Down,
    Left,
    Right,
    PanLeft,
    PanRight,
    ZoomIn,
    ZoomOut,
    ZoomFit,
    ZoomSelection,
    NextInLane,
    PreviousInLane,
    HalfPageUp,
    HalfPageDown,
    PageUp,
    PageDown,
    Start,
    End,
    GoToEvent,
    GoToTime,
    GoToRank,
    GoToBubble,
    GoToWait,
    GoToAlert,
    GoToPeak,
    GoToCritical,
    MarkCritical,
    Why,
    SetMark,
    GoToMark,
    Find,
    NextPage,
    PreviousPage,
    Open,
    NextPane,
    PreviousPane,
    Maximise,
    Show(View),
    TakeCell,
    PutCell,
    MoveCellLeft,
    MoveCellRight,
    SplitCell,
    JoinCells,
    TakeAll,
    Undo,
    Redo,
    SavePlan,
    Pin,
    Link,
    GoToDifference,
    Knobs,
    Set,
    Reset,
    Save,
    Copy,
    Export,
    Palette,
    Help,
    Theme,
    Redraw,
    Suspend,
    Back,
    QuitKeepingFrame,
    Interrupt,
    Crash,
    CrashLab,
}

/// The groups of the help page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Running and stepping.
    Run,
    /// Moving about.
    Move,
    /// Pages, panes, popups.
    Page,
    /// Editing a plan.
    Edit,
    /// Taking something along.
    Out,
    /// The program itself.
    App,
}

impl Group {
    /// All groups in the order of the help page.
    pub const ALL: [Self; 6] = [Self::Page, Self::Edit, Self::Run, Self::Move, Self::Out, Self::App];

    /// The heading on the help page.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Run => "RUN (capital = backwards)",
            Self::Move => "MOVE (vim or arrows)",
            Self::Page => "PAGES AND PANES",
            Self::Edit => "EDITING THE PLAN",
            Self::Out => "OUT",
            Self::App => "APP",
        }
    }
}

/// Where a command exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In every view.
    Anywhere,
    /// In the views of a run, not in the list of lessons.
    Run,
    /// Where the plan is edited.
    Edit,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// What it does.
    pub command: Command,
    /// Its keys, as [`Key`] prints them; two words are a prefix and a key. The first is the one that is shown.
    pub keys: &'static [&'static str],
    /// Its name in the palette.
    pub name: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
    /// The command that does the same the other way, and one help line for the two.
    pub pair: Option<(Command, &'static str)>,
    /// The word in the footer.
    pub hint: &'static str,
    /// Where it stands on the help page.
    pub group: Group,
    /// Where it exists.
    pub place: Place,
}

type Keys = &'static [&'static str];

const fn bind(command: Command, keys: Keys, name: &'static str, help: &'static str) -> Binding {
    Binding { command, keys, name, help, pair: None, hint: name, group: Group::App, place: Place::Anywhere }
}

impl Binding {
    const fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }

    const fn pair(self, other: Command, help: &'static str) -> Self {
        Self { pair: Some((other, help)), ..self }
    }

    const fn run(self) -> Self {
        Self { group: Group::Run, place: Place::Run, ..self }
    }

    const fn moves(self) -> Self {
        Self { group: Group::Move, place: Place::Run, ..self }
    }

    const fn moves_anywhere(self) -> Self {
        Self { group: Group::Move, ..self }
    }

    const fn edits(self) -> Self {
        Self { group: Group::Edit, place: Place::Edit, ..self }
    }

    const fn page(self) -> Self {
        Self { group: Group::Page, place: Place::Run, ..self }
    }

    const fn out(self) -> Self {
        Self { group: Group::Out, place: Place::Run, ..self }
    }

    /// Whether the command exists in `view`.
    #[must_use]
    pub fn exists_in(&self, view: View) -> bool {
        match self.place {
            Place::Anywhere => true,
            Place::Run => view != View::Lessons,
            Place::Edit => view == View::Edit,
        }
    }

    /// The key that is shown: `n`, `g e`.
    #[must_use]
    pub fn shown_key(&self) -> &'static str {
        self.keys.first().copied().unwrap_or_default()
    }
}

/// Every command of the program.
pub const TABLE: &[Binding] = &[
    bind(Command::Play, &["spc"], "play", "play / pause").run(),
    bind(Command::Slower, &["<"], "slower", "play slower").pair(Command::Faster, "slower / faster").run(),
    bind(Command::Faster, &[">"], "faster", "play faster").run(),
    bind(Command::NextOp, &["n"], "next", "next op of the focus rank")
        .pair(Command::PreviousOp, "next / previous op, focus rank")
        .hint("step")
        .run(),
    bind(Command::PreviousOp, &["N"], "previous", "previous op of the focus rank").run(),
    bind(Command::NextEvent, &["s"], "step", "next event of any rank")
        .pair(Command::PreviousEvent, "next / previous event, any rank")
        .hint("event")
        .run(),
    bind(Command::PreviousEvent, &["S"], "step-back", "previous event of any rank").run(),
    bind(Command::Finish, &["f"], "finish", "to the end of the slot or collective")
        .pair(Command::Begin, "to the end / start of slot, collective")
        .run(),
    bind(Command::Begin, &["F"], "begin", "before the slot or collective").run(),
    bind(Command::Continue, &["c"], "continue", "run to a breakpoint, stop or the end")
        .pair(Command::Reverse, "continue / reverse-continue")
        .hint("cont")
        .run(),
    bind(Command::Reverse, &["C"], "reverse", "run back to a breakpoint or stop").run(),
    bind(Command::RunToCursor, &["t"], "to-cursor", "run to the cursor").hint("to cursor").run(),
    bind(Command::Rewind, &["r"], "rewind", "rewind to the start").pair(Command::Rerun, "rewind / run again").run(),
    bind(Command::Rerun, &["R"], "rerun", "run the scenario again").run(),
    bind(Command::Break, &["b"], "break", "toggle a breakpoint at the cursor")
        .pair(Command::ListBreaks, "toggle a breakpoint / list them")
        .run(),
    bind(Command::ListBreaks, &["B"], "breaks", "list the breakpoints").run(),
    bind(Command::Down, &["j", "Down"], "down", "cursor down")
        .pair(Command::Up, "cursor, choice down / up")
        .hint("move")
        .moves_anywhere(),
    bind(Command::Up, &["k", "Up"], "up", "cursor up").moves_anywhere(),
    bind(Command::Left, &["h", "Left"], "left", "cursor left").pair(Command::Right, "cursor left / right").moves(),
    bind(Command::Right, &["l", "Right"], "right", "cursor right").moves(),
    bind(Command::PanLeft, &["H"], "pan-left", "pan half a screen left")
        .pair(Command::PanRight, "pan half a screen")
        .hint("pan")
        .moves(),
    bind(Command::PanRight, &["L"], "pan-right", "pan half a screen right").moves(),
    bind(Command::ZoomIn, &["+", "="], "zoom-in", "zoom in").pair(Command::ZoomOut, "zoom in / out").hint("zoom").moves(),
    bind(Command::ZoomOut, &["-"], "zoom-out", "zoom out").moves(),
    bind(Command::ZoomFit, &["0"], "fit", "show the whole run")
        .pair(Command::ZoomSelection, "zoom to the run / to the selection")
        .moves(),
    bind(Command::ZoomSelection, &["Z"], "zoom-selection", "zoom to the selection").moves(),
    bind(Command::NextInLane, &["."], "next-in-lane", "next span in this lane")
        .pair(Command::PreviousInLane, "next / previous span in this lane")
        .hint("span")
        .moves(),
    bind(Command::PreviousInLane, &[","], "previous-in-lane", "previous span in this lane").moves(),
    bind(Command::HalfPageDown, &["C-d"], "half-down", "half a page down")
        .pair(Command::HalfPageUp, "half a page down / up")
        .moves_anywhere(),
    bind(Command::HalfPageUp, &["C-u"], "half-up", "half a page up").moves_anywhere(),
    bind(Command::PageDown, &["PgDn"], "page-down", "a page down").pair(Command::PageUp, "a page down / up").moves_anywhere(),
    bind(Command::PageUp, &["PgUp"], "page-up", "a page up").moves_anywhere(),
    bind(Command::Start, &["g g", "Home"], "start", "to the start").pair(Command::End, "to the start / end").moves_anywhere(),
    bind(Command::End, &["G", "End"], "end", "to the end").moves_anywhere(),
    bind(Command::GoToEvent, &["g e"], "event", "go to an event by its number").moves(),
    bind(Command::GoToTime, &["g t"], "time", "go to a time").moves(),
    bind(Command::GoToRank, &["g r"], "rank", "go to a rank").moves(),
    bind(Command::GoToBubble, &["g b"], "bubble", "go to the next bubble").moves(),
    bind(Command::GoToWait, &["g w"], "wait", "go to the next wait").moves(),
    bind(Command::GoToAlert, &["g a"], "alert", "go to the next alert").moves(),
    bind(Command::GoToPeak, &["g p"], "peak", "go to the rank's memory peak").moves(),
    bind(Command::GoToCritical, &["g c"], "critical", "go along the critical path").moves(),
    bind(Command::GoToDifference, &["g d"], "difference", "go to the next difference").moves(),
    bind(Command::MarkCritical, &["K"], "mark-critical", "critical ops full, the others hollow").moves(),
    bind(Command::Why, &["w"], "why", "why it waits: the chain to the cause").moves(),
    bind(Command::SetMark, &["m"], "mark", "set a mark (the next key names it)")
        .pair(Command::GoToMark, "set / go to a mark (next key names it)")
        .moves(),
    bind(Command::GoToMark, &["'"], "to-mark", "go to a mark (the next key names it)").moves(),
    bind(Command::Find, &["/"], "find", "find a rank, an op, a text").moves(),
    bind(Command::NextPage, &["]"], "page", "next page of the lesson")
        .pair(Command::PreviousPage, "next / previous page of the lesson")
        .hint("page")
        .page(),
    bind(Command::PreviousPage, &["["], "page-back", "previous page of the lesson").page(),
    Binding { group: Group::Page, ..bind(Command::Open, &["Enter"], "open", "open; try, answer; go to the choice") },
    bind(Command::NextPane, &["Tab"], "pane", "next pane").pair(Command::PreviousPane, "next / previous pane").page(),
    bind(Command::PreviousPane, &["S-Tab"], "pane-back", "previous pane").page(),
    bind(Command::Maximise, &["z"], "maximise", "one pane alone / all panes").hint("max").page(),
    bind(Command::Show(View::Lesson), &["1"], "view-lesson", "the lesson beside the picture").page(),
    bind(Command::Show(View::Timeline), &["2"], "view-timeline", "the timeline alone").page(),
    bind(Command::Show(View::Debugger), &["3", "v"], "view-debugger", "the ranks' programs and values").page(),
    bind(Command::Show(View::Links), &["4"], "view-links", "links and collectives").page(),
    bind(Command::Show(View::Memory), &["5"], "view-memory", "memory over time").page(),
    bind(Command::Show(View::Metrics), &["6"], "view-metrics", "where the time goes").page(),
    bind(Command::Show(View::Waits), &["7"], "view-waits", "who waits for whom").page(),
    bind(Command::Show(View::Mesh), &["8"], "view-mesh", "where ranks stand, and whom each meets").page(),
    bind(Command::Show(View::Edit), &["E"], "view-edit", "edit the plan of the pipeline").page(),
    bind(Command::Show(View::Compare), &["9"], "view-compare", "this run beside a pinned one").page(),
    bind(Command::MoveCellLeft, &["("], "cell-left", "move the cell left")
        .pair(Command::MoveCellRight, "move the cell left / right")
        .hint("move cell")
        .edits(),
    bind(Command::MoveCellRight, &[")"], "cell-right", "move the cell right").edits(),
    bind(Command::TakeCell, &["x"], "take-cell", "take the cell out of the plan")
        .pair(Command::PutCell, "take the cell out / put one in")
        .hint("out/in")
        .edits(),
    bind(Command::PutCell, &["p"], "put-cell", "put a cell that was taken out").edits(),
    bind(Command::SplitCell, &["i"], "split-cell", "B into I and W; a pair into its slots")
        .pair(Command::JoinCells, "split B into I and W / join them")
        .hint("split")
        .edits(),
    bind(Command::JoinCells, &["I"], "join-cells", "join the cell and the one behind it").edits(),
    bind(Command::Undo, &["u"], "undo", "undo the last edit").pair(Command::Redo, "undo / redo an edit").edits(),
    bind(Command::Redo, &["U"], "redo", "redo what was undone").edits(),
    bind(Command::TakeAll, &[], "take-all-cells", "take all cells out, to build a plan").edits(),
    bind(Command::SavePlan, &["W"], "save-plan", "write the plan to a sheet (CSV)").edits(),
    bind(Command::Pin, &["a"], "pin", "pin this run, to compare others").out(),
    bind(Command::Link, &["A"], "link", "link by time, event or micro-batch").out(),
    bind(Command::Knobs, &["o"], "knobs", "turn the scenario's knobs").page(),
    bind(Command::Set, &[], "set", "set any key: set batch.steps=3").page(),
    bind(Command::Reset, &["Bksp"], "reset", "put all knobs back").page(),
    bind(Command::Save, &[], "save-scenario", "write the scenario to a new file").out(),
    bind(Command::Copy, &["y"], "copy", "copy the focused pane as text").out(),
    bind(Command::Export, &["e"], "export", "export svg, perfetto, json, text, csv").out(),
    bind(Command::Palette, &[":"], "commands", "run a command by its name").hint("cmd"),
    bind(Command::Help, &["?", "F1"], "help", "this page"),
    bind(Command::Theme, &["T"], "theme", "theme: dark, light, ansi16, mono"),
    bind(Command::Redraw, &["C-l"], "redraw", "draw everything again"),
    bind(Command::Suspend, &["C-z"], "suspend", "suspend; fg continues"),
    bind(Command::Back, &["q"], "quit", "back; at the top: quit").hint("back"),
    bind(Command::QuitKeepingFrame, &["Q"], "quit-keep", "quit, leave the picture in the shell"),
    bind(Command::Interrupt, &["C-c"], "interrupt", "stop what runs, or quit"),
    bind(Command::Crash, &[], "crash", "panic: does the terminal recover?"),
    bind(Command::CrashLab, &[], "crash-lab", "panic where runs are made"),
];

/// The line of a command.
///
/// # Panics
/// If a command has no line; a test visits all of them.
#[must_use]
pub fn binding(command: Command) -> &'static Binding {
    TABLE.iter().find(|binding| binding.command == command).expect("every command has its line in the table")
}

/// The command of a key in `view`, after the prefix key if one was pressed.
#[must_use]
pub fn lookup(view: View, prefix: Option<char>, key: Key) -> Option<Command> {
    let pressed = prefix.map_or_else(|| key.to_string(), |prefix| format!("{prefix} {key}"));
    let bound = |binding: &&Binding| binding.exists_in(view) && binding.keys.contains(&pressed.as_str());
    TABLE.iter().find(bound).map(|binding| binding.command)
}

/// The commands behind a prefix key in `view`: (second key, line).
pub fn behind(view: View, prefix: char) -> impl Iterator<Item = (&'static str, &'static Binding)> {
    let exists = TABLE.iter().filter(move |binding| binding.exists_in(view));
    let keys = exists.flat_map(|binding| binding.keys.iter().map(move |keys| (*keys, binding)));
    keys.filter_map(move |(keys, binding)| Some((keys.strip_prefix(prefix)?.strip_prefix(' ')?, binding)))
}

/// Whether `character` begins a two-key command in `view`.
#[must_use]
pub fn is_prefix(view: View, character: char) -> bool {
    behind(view, character).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn one_key_has_one_meaning_and_every_command_has_words() {
        let mut meanings = BTreeMap::new();
        let mut names = BTreeMap::new();
        for binding in TABLE {
            for keys in binding.keys {
                let before = meanings.insert(*keys, binding.command);
                assert_eq!(before, None, "{keys} means two things");
                assert!(keys.split(' ').all(|key| Key::parse(key).is_some()), "{keys} is not a key");
            }
            assert_eq!(names.insert(binding.name, binding.command), None, "two commands are named {}", binding.name);
            assert!(!binding.help.is_empty() && !binding.hint.is_empty(), "{} says nothing of itself", binding.name);
            let words = [Some(binding.help), binding.pair.map(|pair| pair.1)];
            for words in words.into_iter().flatten() {
                assert!(words.len() <= 38, "{}: the help page has no room for so many words", binding.name);
            }
        }
        for prefix in meanings.keys().filter_map(|keys| keys.split_once(' ')).map(|(prefix, _)| prefix) {
            assert!(!meanings.contains_key(prefix), "{prefix} is a prefix and a command");
        }
    }

    #[test]
    fn a_pair_stands_in_the_same_group_and_place() {
        for first in TABLE {
            let Some((other, _)) = first.pair else { continue };
            let second = binding(other);
            assert_eq!((second.group, second.place), (first.group, first.place), "{}", first.name);
            assert!(second.pair.is_none(), "{} is already the second of a pair", second.name);
        }
    }

    #[test]
    fn no_key_that_multiplexers_or_terminals_eat() {
        let allowed = ["C-c", "C-z", "C-l", "C-u", "C-d"];
        for binding in TABLE {
            for keys in binding.keys.iter().filter(|keys| keys.starts_with("C-")) {
                assert!(allowed.contains(keys), "{keys}");
            }
            let only_function_key = binding.keys == ["F1"];
            assert!(!only_function_key, "{}: a function key may not be the only way", binding.name);
        }
    }

    #[test]
    fn keys_find_their_commands() {
        let check = |view, prefix, word: &str, expected| {
            assert_eq!(lookup(view, prefix, Key::parse(word).unwrap()), expected, "{prefix:?} {word} in {view:?}");
        };
        check(View::Lesson, None, "n", Some(Command::NextOp));
        check(View::Lessons, None, "n", None);
        check(View::Lessons, None, "j", Some(Command::Down));
        check(View::Lessons, None, "Down", Some(Command::Down));
        check(View::Timeline, Some('g'), "e", Some(Command::GoToEvent));
        check(View::Timeline, None, "e", Some(Command::Export));
        check(View::Timeline, Some('g'), "x", None);
        check(View::Waits, None, "3", Some(Command::Show(View::Debugger)));
        assert!(is_prefix(View::Timeline, 'g') && !is_prefix(View::Timeline, 'n'));
    }
}

//! End to end in a real terminal: what only the real program can show. No test waits but for an answer, except the one that
//! shows that nothing happens.

mod terminal;

use std::time::Duration;

use terminal::Terminal;

use crate::support::row_of;

const COLOUR: &[(&str, &str)] = &[("TERM", "xterm-256color"), ("LANG", "en_GB.UTF-8")];
const NO_COLOUR: &[(&str, &str)] = &[("TERM", "xterm-256color"), ("LANG", "en_GB.UTF-8"), ("NO_COLOR", "1")];

/// A lesson's text and run on the screen.
fn in_a_lesson(size: (u16, u16), environment: &[(&str, &str)]) -> Terminal {
    let mut terminal = Terminal::start(size, environment, &[]);
    terminal.wait_for("Lessons");
    terminal.type_bytes(&format!("{}\r", "j".repeat(row_of(11))));
    // Its first page asks what the run says.
    terminal.wait_for("come with the answer");
    terminal
}

/// The program has left nothing switched on.
fn assert_restored(terminal: &Terminal) {
    let screen = terminal.emulator.screen();
    assert!(!screen.alternate_screen(), "the alternate screen is left");
    assert!(!screen.hide_cursor(), "the cursor is shown");
    assert!(!screen.bracketed_paste(), "pastes are not bracketed");
    assert!(terminal.is_line_by_line(), "raw mode is off");
    let text = String::from_utf8_lossy(&terminal.bytes).into_owned();
    let last = |on: &str, off: &str| text.rfind(off) > text.rfind(on);
    assert!(last("\x1b[?1004h", "\x1b[?1004l"), "focus events are off");
    assert!(!text.contains("\x1b[?1000h"), "the mouse was never taken");
}

#[test]
fn starts_steps_and_quits() {
    let mut terminal = in_a_lesson((120, 36), COLOUR);
    terminal.type_bytes("ss");
    terminal.wait_for("event 2/");
    terminal.type_bytes("S");
    terminal.wait_for("event 1/");
    terminal.type_bytes("qq");
    assert_eq!(terminal.wait_for_exit().exit_code(), 0);
    assert_restored(&terminal);
}

#[test]
fn a_lesson_and_a_scenario_open_by_name() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/gpipe-p4m8.toml");
    let arguments =
        [("11", "Place your bet", "come with the answer"), (scenario, "A scenario without a lesson", "equals one device")];
    for (argument, shown, ran) in arguments {
        let mut terminal = Terminal::start((120, 36), COLOUR, &["learn", argument]);
        terminal.wait_for(shown);
        terminal.wait_for(ran);
        terminal.type_bytes("\x03");
        assert_eq!(terminal.wait_for_exit().exit_code(), 0);
    }
}

#[test]
fn a_panic_where_runs_are_made_is_told_on_the_screen() {
    let mut terminal = in_a_lesson((120, 36), COLOUR);
    terminal.type_bytes(":crash-lab\r");
    terminal.wait_for("a fault of ranklab");
    terminal.type_bytes("R");
    // C-c before the run has come would stop the run and not the lab.
    let has_run =
        |screen: &vt100::Screen| screen.contents().contains("come with the answer") && !screen.contents().contains("[RUNNING]");
    terminal.wait_until("the run", has_run);
    terminal.type_bytes("\x03");
    assert_eq!(terminal.wait_for_exit().exit_code(), 0);
    assert_restored(&terminal);
}

#[test]
fn resizes_down_to_a_line_and_up_again() {
    let mut terminal = in_a_lesson((120, 36), COLOUR);
    terminal.resize((59, 17));
    terminal.wait_for("60x18 needed, 59x17 here");
    terminal.resize((200, 60));
    terminal.wait_for("event 0/");
    terminal.type_bytes("\x03");
    assert_eq!(terminal.wait_for_exit().exit_code(), 0);
}

#[test]
fn a_panic_gives_the_terminal_back_and_is_read_on_it() {
    let mut terminal = in_a_lesson((120, 36), COLOUR);
    terminal.type_bytes(":crash\r");
    assert_eq!(terminal.wait_for_exit().exit_code(), 101);
    assert!(terminal.emulator.screen().contents().contains("asked to, by the command"));
    assert_restored(&terminal);
}

#[test]
fn a_signal_to_end_gives_the_terminal_back() {
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130)] {
        let mut terminal = in_a_lesson((80, 24), COLOUR);
        terminal.signal(signal);
        assert_eq!(terminal.wait_for_exit().exit_code(), code);
        assert_restored(&terminal);
    }
}

#[test]
fn a_hangup_and_a_quit_give_the_terminal_back_and_kill() {
    for (signal, name) in [(libc::SIGHUP, "Hangup"), (libc::SIGQUIT, "Quit")] {
        let mut terminal = in_a_lesson((80, 24), COLOUR);
        terminal.signal(signal);
        assert_eq!(terminal.wait_for_exit().signal(), Some(name), "died by the signal, as whoever sent it expects");
        assert_restored(&terminal);
    }
}

#[test]
fn a_terminal_of_lines_is_left_alone_and_told_what_to_do() {
    for (environment, reason) in [(&[("TERM", "dumb")] as &[(&str, &str)], "TERM=dumb"), (&[], "TERM is not set")] {
        for arguments in [&[] as &[&str], &["learn", "11"]] {
            let mut terminal = Terminal::start((120, 36), environment, arguments);
            assert_eq!(terminal.wait_for_exit().exit_code(), 2);
            let shown = terminal.emulator.screen().contents();
            assert!(shown.contains(reason) && shown.contains("ranklab run"), "{shown}");
            assert!(!terminal.bytes.contains(&0x1b), "no byte steers the terminal");
        }
    }
}

#[test]
fn ctrl_z_gives_the_terminal_back_and_continuing_draws_again() {
    let mut terminal = in_a_lesson((120, 36), COLOUR);
    terminal.type_bytes("\x1a");
    terminal.wait_until_stopped();
    terminal.wait_until("the shell's screen", |screen| !screen.alternate_screen());
    assert_restored(&terminal);
    terminal.signal(libc::SIGCONT);
    terminal.wait_for("event 0/");
    terminal.type_bytes("s");
    terminal.wait_for("event 1/");
    terminal.type_bytes("\x03");
    assert_eq!(terminal.wait_for_exit().exit_code(), 0);
    assert_restored(&terminal);
}

#[test]
fn the_selected_row_can_be_seen_without_colour() {
    let mut terminal = Terminal::start((120, 36), NO_COLOUR, &[]);
    terminal.wait_for("Lessons");
    let screen = terminal.emulator.screen();
    let cells = (0..36).flat_map(|row| (0..120).map(move |column| (row, column)));
    let cell = |(row, column)| screen.cell(row, column).expect("a cell of the screen");
    assert!(cells.clone().any(|place| cell(place).inverse()), "the selection is reversed");
    let plain = |place| (cell(place).fgcolor(), cell(place).bgcolor()) == (vt100::Color::Default, vt100::Color::Default);
    assert!(cells.clone().all(plain), "nothing is coloured");
}

#[test]
fn leaving_with_the_picture_keeps_it_in_the_shell() {
    let mut terminal = in_a_lesson((120, 36), COLOUR);
    terminal.type_bytes("Q");
    assert_eq!(terminal.wait_for_exit().exit_code(), 0);
    assert_restored(&terminal);
    assert!(terminal.emulator.screen().contents().contains("r0 comp"));
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let mut terminal = in_a_lesson((120, 36), COLOUR);
    // The values of a finished op are the last thing to come.
    terminal.type_bytes("ssssssssssss");
    terminal.wait_until("the values at event 12", |screen| {
        let text = screen.contents();
        text.contains("event 12/") && text.contains("holds")
    });
    terminal.wait_for_whole_frame();
    assert_eq!(terminal.bytes_within(Duration::from_secs(5)), 0);
}

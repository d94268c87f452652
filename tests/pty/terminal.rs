//! The real program in a pseudo terminal, seen through an emulator.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};

/// A text that does not appear within this time will not appear.
const LIMIT: Duration = Duration::from_mins(1);

/// The program, its terminal, and what that terminal shows.
pub struct Terminal {
    /// What the program's bytes look like.
    pub emulator: vt100::Parser,
    /// Every byte that the program wrote.
    pub bytes: Vec<u8>,
    output: Receiver<Vec<u8>>,
    input: Box<dyn Write + Send>,
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
}

impl Terminal {
    /// Starts the program with `arguments` on a terminal of (columns, rows), with these environment variables and nothing else.
    pub fn start(size: (u16, u16), environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let pair = native_pty_system().openpty(pty_size(size)).expect("a pseudo terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_ranklab"));
        command.args(arguments);
        // What a learner exports lands in the folder where the lab was opened.
        command.cwd(env!("CARGO_TARGET_TMPDIR"));
        command.env_clear();
        for (name, value) in environment {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).expect("the program starts");
        let reader = pair.master.try_clone_reader().expect("a reader");
        let input = pair.master.take_writer().expect("a writer");
        let emulator = vt100::Parser::new(rows(size), columns(size), 0);
        Self { emulator, bytes: Vec::new(), output: listen(reader), input, master: pair.master, child }
    }

    /// Types bytes.
    pub fn type_bytes(&mut self, bytes: &str) {
        self.input.write_all(bytes.as_bytes()).expect("the terminal takes input");
        self.input.flush().expect("the terminal takes input");
    }

    /// Reads until the screen satisfies `wanted`.
    pub fn wait_until(&mut self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        while !wanted(self.emulator.screen()) {
            match self.output.recv_timeout(LIMIT) {
                Ok(bytes) => self.take(&bytes),
                Err(error) => panic!("{what}: {error}; the screen shows\n{}", self.emulator.screen().contents()),
            }
        }
    }

    /// Reads until the screen shows `text`.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |screen| screen.contents().contains(text));
    }

    /// Reads until the last frame has come in whole.
    pub fn wait_for_whole_frame(&mut self) {
        while !self.bytes.ends_with(b"\x1b[?2026l") {
            let bytes = self.output.recv_timeout(LIMIT).expect("the rest of the frame");
            self.take(&bytes);
        }
    }

    /// Reads to the end of the output and returns how the program ended.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        loop {
            match self.output.recv_timeout(LIMIT) {
                Ok(bytes) => self.take(&bytes),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().expect("an exit status"),
                Err(RecvTimeoutError::Timeout) => panic!("still running:\n{}", self.emulator.screen().contents()),
            }
        }
    }

    /// How many bytes the program writes in `time`.
    pub fn bytes_within(&mut self, time: Duration) -> usize {
        self.output.recv_timeout(time).map_or(0, |bytes| bytes.len())
    }

    /// Changes the terminal's size.
    pub fn resize(&mut self, size: (u16, u16)) {
        self.emulator.screen_mut().set_size(rows(size), columns(size));
        self.master.resize(pty_size(size)).expect("the terminal takes its size");
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: i32) {
        // SAFETY: `kill` touches no memory; the process is a child that was not waited for.
        let sent = unsafe { libc::kill(self.process(), signal) };
        assert_eq!(sent, 0, "the program is there");
    }

    /// Waits until the program has stopped, as a shell does.
    pub fn wait_until_stopped(&self) {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let stopped = unsafe { libc::waitpid(self.process(), &raw mut status, libc::WUNTRACED) };
        assert!(stopped == self.process() && libc::WIFSTOPPED(status), "stopped, not ended");
    }

    /// Whether the terminal gives its input line by line, as it does while no program has claimed it.
    pub fn is_line_by_line(&self) -> bool {
        let modes = self.master.get_termios().expect("the terminal's modes");
        modes.local_flags.bits() & libc::ICANON != 0
    }

    fn process(&self) -> libc::pid_t {
        let id = self.child.process_id().expect("the program runs");
        libc::pid_t::try_from(id).expect("a process id")
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.emulator.process(bytes);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
    }
}

fn listen(mut reader: Box<dyn Read + Send>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

fn pty_size((cols, rows): (u16, u16)) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

fn rows(size: (u16, u16)) -> NonZeroU16 {
    NonZeroU16::new(size.1).expect("rows")
}

fn columns(size: (u16, u16)) -> NonZeroU16 {
    NonZeroU16::new(size.0).expect("columns")
}

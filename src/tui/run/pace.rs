//! How often the screen may draw: a limit for the link, never a tick.

use std::time::{Duration, Instant};

const LOCAL: Duration = Duration::from_millis(33);
const REMOTE: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_millis(500);
/// A write that takes longer than this means that the link cannot keep up.
const SLOW_WRITE: Duration = Duration::from_millis(20);

/// When the next frame may be drawn.
pub struct Pace {
    fastest: Duration,
    interval: Duration,
    focused: bool,
    last: Option<Instant>,
}

impl Pace {
    /// The pace of a local terminal, or of one at the other end of a network (`remote`).
    #[must_use]
    pub fn new(remote: bool) -> Self {
        let fastest = if remote { REMOTE } else { LOCAL };
        Self { fastest, interval: fastest, focused: true, last: None }
    }

    /// Someone looks at the terminal, or no longer does.
    pub fn focus(&mut self, focused: bool) {
        self.focused = focused;
    }

    /// How long to wait before the next frame may be drawn; zero if at once.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Duration {
        let interval = if self.focused { self.interval } else { SLOWEST };
        self.last.map_or(Duration::ZERO, |last| (last + interval).saturating_duration_since(now))
    }

    /// A frame was drawn from `start` to `end`: a slow link gets half as many frames, a recovered one all of them.
    pub fn drew(&mut self, start: Instant, end: Instant) {
        let slow = end.saturating_duration_since(start) > SLOW_WRITE;
        self.interval = if slow { (self.interval * 2).min(SLOWEST) } else { self.fastest };
        self.last = Some(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do as the origin")]
    fn slow_writes_halve_the_pace_and_a_fast_one_restores_it() {
        let origin = Instant::now();
        let at = |millis: u64| origin + Duration::from_millis(millis);
        let mut pace = Pace::new(false);
        assert_eq!(pace.wait(at(0)), Duration::ZERO, "the first frame waits for nothing");
        let mut check = |write_ms: u64, expected_ms: u64| {
            pace.drew(at(0), at(write_ms));
            assert_eq!(pace.wait(at(0)), Duration::from_millis(expected_ms), "after a write of {write_ms} ms");
        };
        check(1, 33);
        check(21, 66);
        check(30, 132);
        check(30, 264);
        check(30, 500);
        check(30, 500);
        check(2, 33);
        pace.focus(false);
        assert_eq!(pace.wait(at(100)), Duration::from_millis(400), "nobody looks");
        assert_eq!(Pace::new(true).fastest, REMOTE);
    }
}

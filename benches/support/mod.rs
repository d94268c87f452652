//! What benches share: the clock that they measure with.

/// Seconds of processor time that this process has used: what else runs on the machine hardly matters.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53 nanoseconds")]
#[must_use]
pub fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec to a place that is valid for it.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "the clock of this process can be read");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

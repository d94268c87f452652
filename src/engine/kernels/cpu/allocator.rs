//! Settings of the C library's allocator that suit tensors: large blocks that come and go all the time.

/// Keeps freed memory in the process instead of giving it back to the system at once. To be called once, when the program starts.
///
/// By default glibc maps every block over 128 KiB afresh and unmaps it when it is freed: each new tensor then costs page faults and
/// zeroing. Elsewhere this does nothing.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const MIB: i32 = 1 << 20;
        // SAFETY: mallopt only sets numbers inside the allocator, and takes its lock for that.
        unsafe {
            if libc::mallopt(libc::M_MMAP_THRESHOLD, 1024 * MIB) == 0 {
                // Before glibc 2.35 this was the most.
                libc::mallopt(libc::M_MMAP_THRESHOLD, 32 * MIB);
            }
            libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
            libc::mallopt(libc::M_TOP_PAD, 64 * MIB);
        }
    }
}

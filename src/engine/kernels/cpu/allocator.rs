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
        prefer_huge_pages(1000 << 20);
    }
}

/// Asks for huge pages in the first `bytes` of the heap: tables of millions of ops are walked a rank at a time, and would miss the address
/// cache with every rank. Nothing is used up: pages still come when they are first written.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn prefer_huge_pages(bytes: usize) {
    const HUGE: usize = 2 << 20;
    // SAFETY: the range advised lies inside the block just allocated, which nobody uses and which goes back to the heap; advice changes
    // no contents.
    unsafe {
        let block = libc::malloc(bytes).cast::<u8>();
        if block.is_null() {
            return;
        }
        let skipped = block.align_offset(HUGE);
        if skipped < bytes {
            libc::madvise(block.add(skipped).cast(), (bytes - skipped) / HUGE * HUGE, libc::MADV_HUGEPAGE);
        }
        libc::free(block.cast());
    }
}

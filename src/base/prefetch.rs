//! Prefetching: a hint to the processor that memory will be needed soon.
//!
//! A run of thousands of ranks takes ops from all over the tables, each with a cache miss or two; but what will end is known in advance.

/// Asks for the cache line of `item`, if there is one and the processor can be asked.
#[inline]
pub fn prefetch<T>(item: Option<&T>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = item {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads and writes nothing, and the address is that of a reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}

//! What the process asks of its allocator. Never knows what is in the memory.

/// Gives memory that was freed back to the kernel. mimalloc does so by itself, but only as part of a later call that frees a lot:
/// a member at rest after a start kept up to a hundred megabytes of what the start alone had needed. To be called after a large
/// piece of work: the kernel has to be asked for each part that is free.
#[expect(unsafe_code, reason = "mimalloc's crate has no wrapper for it")]
pub(in crate::server) fn give_back() {
    // SAFETY: any thread may call it at any time, and nothing that is in use is touched.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

//! Addresses for servers that tests start.

use std::sync::atomic::{AtomicU32, Ordering};

/// A unique loopback address, so that ports cannot conflict.
pub(crate) fn address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let low = process % 50_000;
    format!(
        "127.{}.{}.{}",
        20 + low / 250,
        1 + low % 250,
        1 + next % 250
    )
}

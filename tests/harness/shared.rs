//! A value that several tests share while one of them uses it.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Result;

/// The value is dropped with the last test that uses it: each minute of an idle control plane
/// takes two seconds of a core.
pub struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    /// Without a value until the first test asks for one.
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// The current shared value, or a new one.
    pub fn get(&self, start: impl FnOnce() -> Result<T>) -> Arc<T> {
        let mut current = lock(&self.0);
        current.upgrade().unwrap_or_else(|| {
            let started = Arc::new(start().unwrap());
            *current = Arc::downgrade(&started);
            started
        })
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

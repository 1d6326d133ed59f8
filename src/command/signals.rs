//! The signals that end a command.

use tokio::signal::unix::{SignalKind, signal};

/// Catches SIGINT and SIGTERM from this call on. The future returns the name of the first signal.
pub fn catch_signal() -> impl Future<Output = &'static str> {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        // If belay can't catch both, a signal ends the process.
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        }
    }
}

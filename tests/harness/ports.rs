//! Ports for the servers that tests start.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use super::shared::lock;
use super::{Result, folder};

/// The ports for servers. They are below the ports of outgoing connections, because such a
/// connection could take a port before its server does.
const PORTS: Range<u16> = 10_000..30_000;

/// Free ports that no other test program takes while this one runs.
pub fn free<const N: usize>() -> Result<[u16; N]> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let locks = folder::root().join("ports");
    std::fs::create_dir_all(&locks)?;
    // Programs start at different ports.
    let start = std::process::id().wrapping_mul(97);
    let mut ports = [0; N];
    for port in &mut ports {
        let mut tries = 0..PORTS.len();
        let found = tries.find_map(|_| {
            let next = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            let offset = start.wrapping_add(next) % u32::try_from(PORTS.len()).ok()?;
            let port = PORTS.start + u16::try_from(offset).ok()?;
            take(&locks, port).map(|file| (port, file))
        });
        let (free, file) = found.ok_or("no port is free")?;
        lock(&TAKEN).push(file);
        *port = free;
    }
    Ok(ports)
}

/// Locks a port while the file is open. `None`: it is not free.
fn take(locks: &Path, port: u16) -> Option<File> {
    let file = File::create(locks.join(port.to_string())).ok()?;
    file.try_lock().ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(file)
}

//! The connection from one replica to the API server, which a test can break.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Result;

/// A proxy to the API server. Cheap to clone; it ends with the program.
#[derive(Clone)]
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    thawed: Condvar,
}

#[derive(Default)]
struct State {
    delay: Duration,
    /// Connections before this one carry nothing to the replica and stay open.
    frozen: usize,
    /// The number of connections so far.
    begun: usize,
    open: HashMap<usize, [TcpStream; 2]>,
}

impl Link {
    /// Listens, and forwards connections to the API server.
    pub fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let link = Self { address: listener.local_addr()?, shared: Arc::default() };
        let accepting = link.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the API server is down, this drops and so closes the client's connection.
                let Ok(server) = TcpStream::connect(server) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                accepting.carry(client, server);
            }
        });
        Ok(link)
    }

    /// The address of the API server for the replica.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every open connection: watches are interrupted.
    pub fn cut(&self) {
        for connection in self.state().open.drain().flat_map(|(_, ends)| ends) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Drops the API server's answers on the open connections until they are cut. New
    /// connections work. This is a network that has lost a flow without a reset.
    pub fn freeze(&self) {
        let mut state = self.state();
        state.frozen = state.begun;
    }

    /// Delivers all delayed data.
    pub fn thaw(&self) {
        self.state().frozen = 0;
        self.shared.thawed.notify_all();
    }

    /// Delays each piece of data from the API server.
    pub fn slow(&self, delay: Duration) {
        self.state().delay = delay;
    }

    fn carry(&self, client: TcpStream, server: TcpStream) {
        let copy = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
        let (Some((mut from_client, mut to_server)), Some(ends)) = (copy(), copy()) else { return };
        let number = {
            let mut state = self.state();
            state.begun += 1;
            let number = state.begun;
            state.open.insert(number, ends.into());
            number
        };
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from_client, &mut to_server);
            let _ = to_server.shutdown(Shutdown::Both);
        });
        let link = self.clone();
        let (mut client, mut server) = (client, server);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = server.read(&mut buffer) {
                link.wait(number);
                if client.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            let _ = client.shutdown(Shutdown::Both);
            link.state().open.remove(&number);
        });
    }

    fn wait(&self, number: usize) {
        let state = self.state();
        let delay = state.delay;
        let frozen = |state: &mut State| number <= state.frozen;
        drop(self.shared.thawed.wait_while(state, frozen));
        std::thread::sleep(delay);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

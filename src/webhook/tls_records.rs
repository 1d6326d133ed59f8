//! The socket below TLS, which limits the TLS records without data.
//!
//! A record can change keys, be empty, or contain a part of a message that never ends. Such
//! records cost time and memory, but the layers above TLS never see them. So this socket counts
//! each record and each byte. The data that HTTP gets allows more records.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::rt::net::{ActixStream, Ready, TcpStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A client may send one record for each 128 bytes of its requests.
const MIN_BYTES_PER_RECORD: usize = 128;

/// A client may send 64 more records before its first request, and between two requests. A
/// handshake has fewer than ten.
const INITIAL_CREDIT: usize = 64 * MIN_BYTES_PER_RECORD;

/// Requests allow up to 1,024 records in advance.
const MAX_CREDIT: usize = 1024 * MIN_BYTES_PER_RECORD;

/// The limit of bytes that arrive without data for HTTP. A handshake and the longest record
/// have fewer.
const MAX_BYTES_WITHOUT_DATA: usize = 20 * 1024;

/// The length of a record's header. The last two bytes are the length of the rest.
const HEADER_BYTES: usize = 5;

/// A socket that counts the TLS records that arrive.
pub struct RecordSocket {
    socket: TcpStream,
    /// The bytes that the next records may use up.
    credit: Cell<usize>,
    /// The bytes that have arrived since HTTP last got data.
    bytes_without_data: Cell<usize>,
    is_handshaking: Cell<bool>,
    header: [u8; HEADER_BYTES],
    /// The number of header bytes that have arrived.
    filled: usize,
    /// The number of bytes of the current record that have not arrived yet.
    rest: usize,
}

impl RecordSocket {
    /// A socket before its handshake.
    pub fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            credit: Cell::new(INITIAL_CREDIT),
            bytes_without_data: Cell::new(0),
            is_handshaking: Cell::new(true),
            header: [0; HEADER_BYTES],
            filled: 0,
            rest: 0,
        }
    }

    /// The socket itself.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Allows more records, because HTTP got this many bytes of a request.
    pub fn allow_for(&self, bytes: usize) {
        self.credit.set((self.credit.get() + bytes).min(MAX_CREDIT));
        self.bytes_without_data.set(0);
    }

    /// Records the end of the handshake.
    pub fn end_handshake(&self) {
        self.bytes_without_data.set(0);
        self.is_handshaking.set(false);
    }

    /// Whether more than 20 KiB have arrived since HTTP last got data. TLS reads several records
    /// before HTTP gets their data, so only check this when there is nothing more to read.
    pub fn exceeds_limit_without_data(&self) -> bool {
        self.bytes_without_data.get() > MAX_BYTES_WITHOUT_DATA
    }

    /// Allows the records of the next request.
    pub fn allow_request(&self) {
        self.credit.set(self.credit.get().max(INITIAL_CREDIT));
    }

    fn count(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.bytes_without_data.set(self.bytes_without_data.get() + bytes.len());
        if self.is_handshaking.get() && self.exceeds_limit_without_data() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        while let Some(first) = bytes.first() {
            if self.rest > 0 {
                let part = self.rest.min(bytes.len());
                self.rest -= part;
                bytes = &bytes[part..];
                continue;
            }
            self.header[self.filled] = *first;
            self.filled += 1;
            bytes = &bytes[1..];
            if self.filled == HEADER_BYTES {
                let [.., high, low] = self.header;
                (self.rest, self.filled) = (usize::from(u16::from_be_bytes([high, low])), 0);
                let credit = self.credit.get().checked_sub(MIN_BYTES_PER_RECORD);
                self.credit.set(credit.ok_or(io::ErrorKind::ConnectionAborted)?);
            }
        }
        Ok(())
    }
}

impl AsyncRead for RecordSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        Poll::Ready(self.count(&buffer.filled()[before..]))
    }
}

impl AsyncWrite for RecordSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

impl ActixStream for RecordSocket {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        ActixStream::poll_read_ready(&self.socket, cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        ActixStream::poll_write_ready(&self.socket, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> RecordSocket {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        RecordSocket::new(TcpStream::from_std(near).unwrap())
    }

    #[tokio::test]
    async fn h98_records_are_counted_however_they_arrive() {
        let record = [23, 3, 3, 0, 2, 0, 0];
        let empty = [23, 3, 3, 0, 0];
        for chunk in [1, 3, 5, 7, 4096] {
            let mut socket = socket();
            let bytes = [&record[..], &empty].concat().repeat(32);
            assert!(bytes.chunks(chunk).all(|part| socket.count(part).is_ok()));
            assert_eq!(socket.credit.get(), 0);
            assert!(empty.chunks(chunk).any(|part| socket.count(part).is_err()), "one more");
        }
    }

    #[tokio::test]
    async fn h110_bytes_that_carry_nothing_are_bounded() {
        let mut handshaking = socket();
        let header = [22, 3, 3, 0xff, 0xff];
        assert!(
            handshaking.count(&[&header[..], &[0; MAX_BYTES_WITHOUT_DATA - 5]].concat()).is_ok()
        );
        assert!(handshaking.count(&[0]).is_err());

        let mut socket = socket();
        socket.end_handshake();
        let record = [&[23, 3, 3, 0x40, 0][..], &[0; 0x4000]].concat();
        assert!((0..3).all(|_| socket.count(&record).is_ok()));
        assert!(socket.exceeds_limit_without_data());
        // HTTP gets the data of these records.
        socket.allow_for(3 * 0x3fe0);
        assert!(socket.count(&record[..0x4000]).is_ok() && !socket.exceeds_limit_without_data());
    }

    #[tokio::test]
    async fn h98_requests_allow_records_within_a_bound() {
        let socket = socket();
        socket.allow_for(1);
        assert_eq!(socket.credit.get(), INITIAL_CREDIT + 1);
        socket.allow_for(usize::MAX / 2);
        assert_eq!(socket.credit.get(), MAX_CREDIT);
        socket.credit.set(1);
        socket.allow_request();
        assert_eq!(socket.credit.get(), INITIAL_CREDIT);
    }
}

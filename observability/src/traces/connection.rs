//! Connections that know why they broke. A collector that refuses the operator's certificate says so in an alert and hangs
//! up; whoever is still writing then learns of a broken pipe, and the libraries above forget even what was read.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

/// Why the last request failed: the exporter's own error does not say.
#[derive(Clone, Debug, Default)]
pub(super) struct LastFailure(Arc<Mutex<Option<String>>>);

impl LastFailure {
    pub fn set(&self, why: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Takes it out, after this text, unless that says it already.
    pub fn explain(&self, text: String) -> String {
        match self.take() {
            Some(known) if !text.contains(&known) => format!("{text}: {known}"),
            _ => text,
        }
    }

    /// Takes it out.
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Makes [`Watched`] connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    pub inner: HttpsConnector<HttpConnector>,
    pub failure: LastFailure,
}

impl Service<Uri> for Connector {
    type Response = Watched<MaybeHttpsStream<TokioIo<TcpStream>>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, failure) = (self.inner.call(uri), self.failure.clone());
        Box::pin(async move { Ok(Watched { stream: connecting.await?, failure, told: false, broken: None }) })
    }
}

/// A connection that tells why it broke.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    failure: LastFailure,
    /// What follows the first error only follows from it.
    told: bool,
    /// Why a write failed, while the other side's reason is waited for.
    broken: Option<io::Error>,
}

impl<S: Read + Unpin> Watched<S> {
    fn tell<T>(&mut self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result
            && !std::mem::replace(&mut self.told, true)
        {
            self.failure.set(error.to_string());
        }
        result
    }

    /// Writes, unless that has failed before. Then the other side's reason may be on its way through this process: its end is
    /// closed, so that a read ends soon. Nothing is lost by reading: whoever could not write gives the connection up.
    fn write<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let broken = match self.broken.take() {
            Some(broken) => broken,
            None => match write(Pin::new(&mut self.stream), cx) {
                Poll::Ready(Err(broken)) => broken,
                fine => return fine,
            },
        };
        let mut bytes = [0; 1024];
        let mut bytes = ReadBuf::new(&mut bytes);
        let error = match Pin::new(&mut self.stream).poll_read(cx, bytes.unfilled()) {
            Poll::Ready(Err(reason)) if reason.kind() == io::ErrorKind::InvalidData => reason,
            Poll::Ready(_) => broken,
            Poll::Pending => {
                self.broken = Some(broken);
                return Poll::Pending;
            }
        };
        self.tell(Poll::Ready(Err(error)))
    }
}

impl<S: Read + Unpin> Read for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.tell(result)
    }
}

impl<S: Read + Write + Unpin> Write for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, S::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }
}

impl<S: Connection> Connection for Watched<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use rstest::rstest;

    use super::*;

    type Given = io::Result<&'static [u8]>;

    /// Cannot be written to; gives this when it is read, but not at once.
    struct HungUp(fn() -> Given, bool);

    impl Read for HungUp {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            mut buf: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            if !std::mem::replace(&mut self.1, true) {
                return Poll::Pending;
            }
            Poll::Ready(self.0().map(|bytes| buf.put_slice(bytes)))
        }
    }

    impl Write for HungUp {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, "broken pipe")))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn alert() -> Given {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
        Err(io::Error::new(io::ErrorKind::InvalidData, alert))
    }

    fn reset() -> Given {
        Err(io::ErrorKind::ConnectionReset.into())
    }

    #[rstest]
    #[case::an_alert(alert, "received fatal alert: CertificateRequired")]
    #[case::a_reset(reset, "broken pipe")]
    #[case::an_answer(|| Ok(&b"HTTP/1.1 400"[..]), "broken pipe")]
    #[case::the_end(|| Ok(&b""[..]), "broken pipe")]
    fn a_failed_write_tells_the_reason_that_can_be_read(#[case] read: fn() -> Given, #[case] why: &str) {
        let stream = HungUp(read, false);
        let mut watched = Watched { stream, failure: LastFailure::default(), told: false, broken: None };
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut watched).poll_write(cx, b"spans").is_pending(), "nothing can be read yet");
        assert_eq!(watched.failure.take(), None);
        let result = Pin::new(&mut watched).poll_flush(cx);
        assert!(matches!(&result, Poll::Ready(Err(error)) if error.to_string() == why), "{result:?}");
        assert_eq!(watched.failure.take().as_deref(), Some(why));
        let result = Pin::new(&mut watched).poll_write(cx, b"spans");
        assert!(matches!(&result, Poll::Ready(Err(_))), "{result:?}");
        assert_eq!(watched.failure.take(), None, "the first error of a connection is told");
    }

    #[rstest]
    #[case::nothing_is_known(None, "request failed: closed", "request failed: closed")]
    #[case::more_is_known(Some("alert"), "request failed: closed", "request failed: closed: alert")]
    #[case::it_says_so(Some("alert"), "request failed: alert", "request failed: alert")]
    fn an_explanation_keeps_the_reason(#[case] known: Option<&str>, #[case] text: &str, #[case] told: &str) {
        let failure = LastFailure::default();
        if let Some(known) = known {
            failure.set(known.to_owned());
        }
        assert_eq!(failure.explain(text.to_owned()), told);
        assert_eq!(failure.take(), None);
    }
}

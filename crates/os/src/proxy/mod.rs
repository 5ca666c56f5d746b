//! Proxies that applications are told of: [`socks5`] and [`http_connect`].

pub mod socks5;
mod socks5_udp;
pub mod http_connect;
pub mod users;

use std::io;
use std::sync::Arc;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::listener::{accept, is_welcome};
use users::Users;

/// Connections that have not said yet what they want; more are not accepted.
const MAX_ASKING: usize = 512;

/// Who may use a proxy, and when it answers.
#[derive(Debug, Clone, Default)]
pub struct Proxy {
    /// Networks whose hosts may use it, beside this machine itself.
    pub clients: Vec<IpNet>,
    /// Who has to say a name and password, if anybody.
    pub users: Option<Users>,
    /// The answer waits for the origin's.
    pub after_origin: bool,
}

/// Gives the connections of those who may use the `proxy` that the configuration calls `name` to
/// `serve`, for ever, each with its place among those that have not said yet what they want.
async fn serve_clients<F>(
    listener: TcpListener,
    name: &'static str,
    proxy: Proxy,
    serve: impl Fn(TcpStream, Arc<Proxy>, OwnedSemaphorePermit) -> F,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let (proxy, places) = (Arc::new(proxy), Arc::new(Semaphore::new(MAX_ASKING)));
    accept(listener, move |stream| {
        let taken = if is_welcome(&stream, &proxy.clients) {
            (places.clone().try_acquire_owned())
                .map(|place| serve(stream, proxy.clone(), place))
                .map_err(|_| io::Error::other("too many connections without a request"))
        } else {
            Err(io::Error::other(format!("not among {name}.clients")))
        };
        async move { taken?.await }
    })
    .await;
}

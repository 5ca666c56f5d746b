//! Proxies that applications are told of: [`socks5`] and [`http_connect`].

pub mod socks5;
mod socks5_udp;
pub mod http_connect;
pub mod users;

use std::io;
use std::sync::Arc;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};

use crate::listener::{accept, is_welcome};
use users::Users;

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
/// `serve`, for ever.
async fn serve_clients<F>(
    listener: TcpListener,
    name: &'static str,
    proxy: Proxy,
    serve: impl Fn(TcpStream, Arc<Proxy>) -> F,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let proxy = Arc::new(proxy);
    accept(listener, move |stream| {
        let welcome = is_welcome(&stream, &proxy.clients);
        let served = welcome.then(|| serve(stream, proxy.clone()));
        async move {
            let refused = || io::Error::other(format!("not among {name}.clients"));
            served.ok_or_else(refused)?.await
        }
    })
    .await;
}

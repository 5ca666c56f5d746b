//! The TCP listeners of transparent ingress.

use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_tunnel::terminal::dns::Resolver;
use socket2::SockRef;
use tokio::net::TcpListener;

use super::held::Held;
use crate::dns;
use crate::kernel_memory::KernelMemory;
use crate::listener::accept;
use crate::tcp::TcpFlow;

/// Gives redirected connections to `terminal`, for ever; `by_name` those whose
/// client has asked for the name. Those that were `held` back belong to a flow already. Questions
/// of DNS go to `resolver`, if there is one.
pub async fn serve(
    listener: TcpListener,
    by_name: bool,
    held: Option<Held>,
    resolver: Option<Resolver>,
    memory: KernelMemory,
    terminal: Terminal,
) {
    accept(listener, move |stream| {
        let (terminal, resolver, held) = (terminal.clone(), resolver.clone(), held.clone());
        let memory = memory.clone();
        async move {
            // TPROXY leaves the destination in place: it is this socket's own address.
            let (peer, destination) = (stream.peer_addr()?, stream.local_addr()?);
            let mut target = Target::from(destination);
            let client = peer.ip();
            let waiting = held
                .as_ref()
                .and_then(|held| held.waiting(peer, destination));
            if let Some(give) = waiting {
                let _ = give.send(TcpFlow::prepared(stream).bounded(&memory)?);
                return Ok(());
            }
            if let Some(resolver) = resolver
                && target.port == dns::PORT
            {
                // The end of these is none that must not be taken for another.
                SockRef::from(&stream).set_linger(None)?;
                return dns::serve_stream(stream, resolver).await;
            }
            if by_name {
                target = terminal.named(client, target);
            }
            let socket = TcpFlow::prepared(stream).bounded(&memory)?;
            let refusal = terminal.carry_for(client, socket, target).await;
            if let (Some(held), Some(refusal)) = (held, refusal) {
                held.refused(destination, &refusal);
            }
            Ok(())
        }
    })
    .await;
}

//! Connections: to servers in the container for the server, and from inside to the server's services.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::super::mux::{Mux, MuxStream};
use super::super::wire::{self, HelperReply, SERVICE_CONNECTIONS_MAX, Service};
use super::serve::failed;
use crate::sandbox::WorkError;
use crate::sandbox::reach::{MODELS_PORT, PROXY_PORT, Reach};

/// How long connecting to a server inside may take. Over loopback it takes microseconds, unless the
/// server accepts no connections.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// How long a connection waits for the server, which may be starting again.
const SERVER_WAIT: Duration = Duration::from_secs(30);

/// The pause after a failed accept, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connects to a port on the loopback, of IPv4 or else of IPv6, and passes bytes both ways.
pub async fn connect(port: u16, call: &mut MuxStream) -> io::Result<()> {
    let addresses: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    for address in addresses {
        if let Ok(Ok(mut server)) = timeout(CONNECT_WAIT, TcpStream::connect(address)).await {
            let _ = server.set_nodelay(true);
            wire::send(call, &HelperReply::Done).await?;
            return copy_bidirectional(call, &mut server).await.map(drop);
        }
    }
    wire::send(call, &failed(WorkError::NotListening)).await
}

/// Listens for what commands ask of the server.
pub fn listen(reach: Reach, server: &watch::Sender<Option<Mux>>) -> io::Result<()> {
    let services: &[(u16, Service)] = match reach {
        Reach::Host => &[],
        Reach::Loopback => &[(MODELS_PORT, Service::Models)],
        Reach::Git | Reach::Proxy => {
            &[(MODELS_PORT, Service::Models), (PROXY_PORT, Service::Proxy)]
        }
    };
    for (port, service) in services {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, *port))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        tokio::spawn(accept(listener, *service, server.subscribe()));
    }
    Ok(())
}

async fn accept(listener: TcpListener, service: Service, server: watch::Receiver<Option<Mux>>) {
    let places = Arc::new(Semaphore::new(SERVICE_CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((connection, _)) => {
                let server = server.clone();
                tokio::spawn(async move {
                    // An error concerns only its two ends.
                    let _ = pass_on(connection, service, server).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Passes one connection on to the server.
async fn pass_on(
    mut connection: TcpStream,
    service: Service,
    mut server: watch::Receiver<Option<Mux>>,
) -> io::Result<()> {
    let _ = connection.set_nodelay(true);
    let is_there = |server: &Option<Mux>| server.as_ref().is_some_and(|mux| !mux.is_gone());
    let there = timeout(SERVER_WAIT, server.wait_for(is_there)).await;
    let mux = there.ok().and_then(Result::ok).and_then(|server| (*server).clone());
    let stream = match mux {
        Some(mux) => mux.open().await,
        None => None,
    };
    let mut stream = stream.ok_or(io::ErrorKind::NotConnected)?;
    stream.write_all(&[service.byte()]).await?;
    copy_bidirectional(&mut connection, &mut stream).await.map(drop)
}

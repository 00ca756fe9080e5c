//! Sockets: the host's, and families that sandboxes do not need.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::common::marker;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a C compiler, and uses up what there is of the machine"]
async fn no_socket_of_the_host_is_reached() {
    let Some(world) = World::new(7).await else { return };
    let name = format!("issuebox-test-{}", marker());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _abstract = UnixListener::bind_addr(&address).expect("bound");
    let listener = TcpListener::bind("0.0.0.0:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let (named, loopback) =
        (format!("abstract_socket {name}"), format!("connect 127.0.0.1 {port}"));
    world
        .try_all(&[
            ("connects to an abstract socket", &named, "ECONNREFUSED"),
            ("connects to the host's loopback", &loopback, "ECONNREFUSED"),
            ("connects to the metadata address", "connect 169.254.169.254 80", "ENETUNREACH"),
            ("connects to a private address", "connect 10.0.0.1 80", "ENETUNREACH"),
            ("connects to a public address", "connect 192.0.2.1 443", "ENETUNREACH"),
            ("speaks to the hypervisor", "family 40", "EPERM"),
            ("reads packets", "family 17", "EPERM"),
            ("uses the kernel's ciphers", "family 38", "EPERM"),
            ("speaks to a key server", "family 15", "EPERM"),
            ("uses Bluetooth", "family 31", "EPERM"),
            ("uses TIPC", "family 30", "EPERM"),
            ("uses XDP", "family 44", "EPERM"),
            ("uses a CAN bus", "family 29", "EPERM"),
            ("writes raw packets", "raw", "EPERM"),
            ("writes raw packets of IPv6", "raw_6", "EPERM"),
            ("listens on a low port", "low_port", "EACCES"),
            ("adds an interface", "new_interface", "EPERM"),
            ("takes loopback down", "lower_loopback", "EPERM"),
            ("writes into the audit log", "audit", "EPERM"),
            ("uses netlink among its processes", "netlink 2", "EPERM"),
            ("uses netlink for statistics of sockets", "netlink 4", "EPERM"),
            ("uses MPTCP", "protocol 262", "EPERM"),
            ("uses SCTP", "protocol 132", "EPERM"),
            ("forges who sent a message", "forge_credentials", "EPERM"),
        ])
        .await;
    listener.set_nonblocking(true).expect("set");
    assert!(listener.accept().is_err(), "there may be no connection");
    world.end().await;
}

//! Connects to the first of a name's addresses that answers (RFC 8305, "happy eyeballs").
//!
//! A machine may have an IPv6 address but no IPv6 route to the internet. A client behind a proxy cannot
//! try the next address itself, so the proxy does.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};

/// Time limit for one address.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Head start of each address (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Most concurrent attempts; each takes a file descriptor.
const AT_ONCE_MAX: usize = 2;

/// Connects to the addresses in order, starting the next one when one fails or is slow. Returns the first
/// connection; the other attempts are cancelled.
///
/// # Errors
/// The error of the last failed attempt.
pub async fn first_of<S, F>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> Result<S, String>
where
    F: Future<Output = std::io::Result<S>>,
{
    let mut why = "it has no address".to_owned();
    let mut left = addresses.iter();
    let mut tries = FuturesUnordered::new();
    loop {
        if tries.len() < AT_ONCE_MAX
            && let Some(address) = left.next()
        {
            tries.push(timeout(ANSWER_WAIT, connect(*address)));
        }
        let may_begin = tries.len() < AT_ONCE_MAX && left.len() > 0;
        tokio::select! {
            biased;
            ended = tries.next() => match ended {
                Some(Ok(Ok(connected))) => return Ok(connected),
                Some(Ok(Err(error))) => why = error.to_string(),
                Some(Err(_)) => "it does not answer".clone_into(&mut why),
                None => return Err(why),
            },
            () = sleep(HEAD_START), if may_begin => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;

    use super::*;

    /// An address's behaviour.
    #[derive(Clone, Copy)]
    enum Does {
        Answer(u64),
        Refuse,
        Nothing,
    }
    use Does::{Answer, Nothing, Refuse};

    #[tokio::test(start_paused = true)]
    async fn the_first_that_answers_wins_and_a_silent_one_delays_nothing() {
        for (addresses, taken, took_ms) in [
            (&[Answer(0), Answer(0)][..], Ok(0), 0),
            // Within its head start.
            (&[Answer(200), Answer(0)], Ok(0), 200),
            (&[Nothing, Answer(0)], Ok(1), 250),
            (&[Answer(900), Answer(100)], Ok(1), 350),
            (&[Refuse, Refuse, Answer(0)], Ok(2), 0),
            (&[Nothing, Refuse, Answer(0)], Ok(2), 250),
            // At most two at once: the third starts when the first times out.
            (&[Nothing, Nothing, Answer(0)], Ok(2), 10_000),
            (&[Refuse, Refuse], Err("refused"), 0),
            (&[Refuse, Nothing], Err("it does not answer"), 10_000),
            (&[], Err("it has no address"), 0),
        ] {
            let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let connect = |address: SocketAddr| {
                let n = usize::from(address.port());
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                let (does, now) = (addresses[n], &now);
                async move {
                    match does {
                        Answer(ms) => sleep(Duration::from_millis(ms)).await,
                        Refuse => {}
                        Nothing => sleep(Duration::from_secs(3_600)).await,
                    }
                    now.fetch_sub(1, Ordering::Relaxed);
                    match does {
                        Refuse => Err(io::Error::other("refused")),
                        Answer(_) | Nothing => Ok(n),
                    }
                }
            };
            let ports = 0..u16::try_from(addresses.len()).expect("few");
            let list: Vec<_> = ports.map(|port| SocketAddr::from(([192, 0, 2, 1], port))).collect();
            let begun = Instant::now();
            let got = first_of(&list, connect).await;
            assert_eq!(got.as_ref().map_err(String::as_str), taken.as_ref().map_err(|why| *why));
            assert_eq!(begun.elapsed().as_millis(), took_ms, "{} addresses", addresses.len());
        }
    }
}

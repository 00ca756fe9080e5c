//! Which of a name's addresses answers first (RFC 8305, "happy eyeballs").
//!
//! A machine may have an address of IPv6 and no way out by it; then nothing answers, for as long as one
//! waits. Whoever speaks to a proxy can't try the next address meanwhile, so that this does.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};

/// How long one address may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How long one is waited for alone (RFC 8305, 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// How many are tried at once, each of which takes a descriptor.
const AT_ONCE_MAX: usize = 2;

/// Connects to the addresses, the next one where one fails or does not answer soon, and gives the first
/// connection that is made; the others end.
///
/// # Errors
/// Why there is none, for people: of the last one that failed.
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

    /// What an address does when it is connected to.
    #[derive(Clone, Copy)]
    enum Does {
        Answer(u64),
        Refuse,
        Nothing,
    }
    use Does::{Answer, Nothing, Refuse};

    #[tokio::test(start_paused = true)]
    async fn the_first_that_answers_is_taken_and_a_silent_one_holds_up_nobody() {
        for (addresses, taken, took_ms) in [
            (&[Answer(0), Answer(0)][..], Ok(0), 0),
            // It is worth waiting for.
            (&[Answer(200), Answer(0)], Ok(0), 200),
            (&[Nothing, Answer(0)], Ok(1), 250),
            (&[Answer(900), Answer(100)], Ok(1), 350),
            (&[Refuse, Refuse, Answer(0)], Ok(2), 0),
            (&[Nothing, Refuse, Answer(0)], Ok(2), 250),
            // No more than two at once: the third has its turn when the first is given up.
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

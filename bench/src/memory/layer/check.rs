//! Whether a layer does the work that it is measured for: the status and the headers of its responses, and a counter for
//! each client.

use std::net::SocketAddr;

use http::Response;

use super::call;
use super::service::Boxed;
use super::sides::Side;
use crate::work::Answers;

/// Of clients that send nothing else.
const CLIENTS: [[u8; 4]; 2] = [[172, 16, 0, 1], [172, 16, 0, 2]];

/// Sends two requests of each of two clients.
pub(super) fn work(side: &mut Side) -> Result<(), String> {
    let fault = |fault: String| format!("{} does not do its work: {fault}", side.name);
    let [first, second] = CLIENTS.map(|client| two(&mut side.service, client));
    for [_, answer] in [&first, &second] {
        exactly(side.answers, answer).map_err(fault)?;
    }
    if let Some(twin) = &mut side.twin {
        for client in CLIENTS {
            let statuses = two(twin, client).map(|answer| answer.status().as_u16());
            if statuses != [200, 429] {
                return Err(fault(format!("with a limit of 1, a client's responses were {statuses:?}")));
            }
        }
    }
    let counted = [first, second].map(|answers| answers.map(|answer| remaining(&answer)));
    let counts_down = match counted[0] {
        // The unit of a client that is refused then.
        [Some(0), Some(0)] => side.answers.status == 429,
        [Some(first), Some(second)] => first == second + 1,
        [None, None] => side.twin.is_some() || !side.is_limit,
        _ => side.answers.status == 429,
    };
    if counts_down && counted[0] == counted[1] {
        Ok(())
    } else {
        Err(fault(format!("of two clients remained {counted:?}")))
    }
}

/// Whether a response is one of these, and has no header but those.
pub(crate) fn exactly(answers: Answers, response: &Response<()>) -> Result<(), String> {
    let mut names: Vec<_> = response.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    if response.status().as_u16() == answers.status && names == answers.headers {
        return Ok(());
    }
    Err(format!("expected {answers:?}, not {} with {names:?}", response.status()))
}

fn two(service: &mut Boxed, client: [u8; 4]) -> [Response<()>; 2] {
    let client = SocketAddr::from((client, 40_000));
    [call(service, &client), call(service, &client)]
}

/// By the legacy header, or by the member `r` of the other.
fn remaining(response: &Response<()>) -> Option<u64> {
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    let in_ietf = || header("ratelimit")?.split(';').find_map(|member| member.strip_prefix("r="));
    header("x-ratelimit-remaining").or_else(in_ietf)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::service::{Inner, boxed};
    use super::super::sides::{self, Side};
    use super::work;
    use crate::work::{Answers, BOTH};

    fn found(name: &str, change: impl Fn(&mut Side)) -> String {
        let mut side = sides::all().into_iter().find(|side| side.name == name).expect("a side of this name");
        change(&mut side);
        work(&mut side).err().unwrap_or_default()
    }

    #[test]
    fn a_layer_that_does_other_work_is_found() {
        for side in sides::all() {
            assert_eq!(found(side.name, |_| ()), "");
        }
        assert!(found(sides::BARE, |side| side.answers = Answers::admitted(BOTH)).contains("expected Answers"));
        assert!(found(sides::ONE, |side| side.service = boxed(Inner)).contains("expected Answers"));
        assert!(found(sides::BARE, |side| side.twin = Some(boxed(Inner))).contains("responses were [200, 200]"));
        assert!(found(sides::BARE, |side| side.twin = None).contains("remained"));
    }
}

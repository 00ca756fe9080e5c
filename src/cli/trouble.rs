//! What stands in the way at the server, told beside the answer: why nothing happens.

use super::client::{ApiClient, ApiRequest};
use crate::types::inert;

/// Tells on standard error which providers cannot work now, and why. Not a result: a program that
/// reads standard output does not see it.
pub(super) async fn tell_troubles(client: &ApiClient) {
    // What was asked for has been answered; that this was not is no failure of it.
    let Ok(system) = client.call(ApiRequest::get(&["system"])).await else { return };
    for provider in system.data()["providers"].as_array().into_iter().flatten() {
        if let (Some(name), Some(trouble)) =
            (provider["name"].as_str(), provider["trouble"].as_str())
        {
            eprintln!("{} cannot work now: {}", inert(name), inert(trouble));
        }
    }
}

//! Prints the errors of providers beside a result, so that a person sees why nothing happens.

use super::client::{ApiClient, ApiRequest};
use crate::types::inert;

/// Prints on standard error which providers do not work, and why. A program that reads standard
/// output does not see it.
pub(super) async fn print_provider_errors(client: &ApiClient) {
    // The verb has succeeded; a failure to get this is not its failure.
    let Ok(system) = client.call(ApiRequest::get(&["system"])).await else { return };
    for provider in system.data()["providers"].as_array().into_iter().flatten() {
        if let (Some(name), Some(trouble)) =
            (provider["name"].as_str(), provider["trouble"].as_str())
        {
            eprintln!("provider {} does not work: {}", inert(name), inert(trouble));
        }
    }
}

//! Pages: the next one is read out of `Link` and asked for by a relative path, so that no address of
//! an answer decides where our credentials are sent.

use super::super::api::PageCursor;
use super::transport::{HttpAnswer, Transport};

/// Where a list goes on, as a path of this GitHub.
pub(super) fn next(transport: &Transport, answer: &HttpAnswer) -> Option<PageCursor> {
    let address = next_address(answer.header("link")?)?;
    transport.path_of(address).map(|path| PageCursor(Some(path.to_owned())))
}

/// The address of `rel="next"` in a `Link` header (RFC 8288, as far as GitHub uses it).
fn next_address(link: &str) -> Option<&str> {
    link.split(',').find_map(|entry| {
        let (address, parameters) = entry.trim().strip_prefix('<')?.split_once('>')?;
        let mut parameters = parameters.split(';').map(str::trim);
        parameters.any(|p| p == "rel=\"next\"" || p == "rel=next").then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_found_among_the_relations() {
        let link = "<https://api.github.com/x?page=1>; rel=\"prev\", \
                    <https://api.github.com/repositories/7/x?page=3>; rel=\"next\", <…>; rel=\"last\"";
        assert_eq!(next_address(link), Some("https://api.github.com/repositories/7/x?page=3"));
        assert_eq!(next_address("<https://api.github.com/x?page=1>; rel=\"prev\""), None);
        assert_eq!(next_address("nonsense"), None);
    }
}

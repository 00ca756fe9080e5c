//! Joins text that streams in pieces with the whole block that follows, so that nothing is said twice.

use super::bounds::{NAME_MAX, TEXT_MAX, cut};
use super::{AgentEvent, TextPart};

/// How many streams are followed at once: the agent's own and those of its sub-agents.
const STREAMS_MAX: usize = 32;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Words for people.
    Text,
    /// Thoughts.
    Thinking,
}

/// The blocks that are being streamed. Of their text only length and hash are kept.
#[derive(Debug, Default)]
pub struct BlockStreams {
    open: Vec<OpenBlock>,
}

#[derive(Debug)]
struct OpenBlock {
    parent: Option<String>,
    kind: BlockKind,
    /// How many bytes were passed on as pieces.
    len: usize,
    hash: Fnv,
}

impl BlockStreams {
    /// A piece of a block.
    pub fn piece(&mut self, parent: Option<&str>, kind: BlockKind, text: &str) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        let at = match self.find(parent) {
            Some(at) if self.open[at].kind == kind => at,
            _ => {
                events.extend(self.abandon(parent));
                if self.open.len() == STREAMS_MAX {
                    self.open.remove(0);
                }
                let parent = parent.map(|it| cut(it, NAME_MAX));
                self.open.push(OpenBlock { parent, kind, len: 0, hash: Fnv::default() });
                self.open.len() - 1
            }
        };
        let block = &mut self.open[at];
        block.len += text.len();
        block.hash.write(text.as_bytes());
        events.push(event(kind, text, TextPart::Piece, parent));
        events
    }

    /// A whole block. Only what its pieces lack is passed on.
    pub fn whole(&mut self, parent: Option<&str>, kind: BlockKind, text: &str) -> Vec<AgentEvent> {
        let block = self.find(parent).map(|at| self.open.remove(at));
        let Some(block) = block else { return vec![event(kind, text, TextPart::Whole, parent)] };
        if block.kind != kind {
            let dropped = event(block.kind, "", TextPart::Dropped, parent);
            return vec![dropped, event(kind, text, TextPart::Whole, parent)];
        }
        let is_same = |head: &str| {
            let mut hash = Fnv::default();
            hash.write(head.as_bytes());
            hash == block.hash
        };
        vec![match text.split_at_checked(block.len) {
            Some((head, rest)) if is_same(head) => event(kind, rest, TextPart::End, parent),
            _ => event(kind, text, TextPart::Whole, parent),
        }]
    }

    /// The block that is open will not go on: another begins, or the request is repeated.
    pub fn abandon(&mut self, parent: Option<&str>) -> Option<AgentEvent> {
        let block = self.open.remove(self.find(parent)?);
        Some(event(block.kind, "", TextPart::Dropped, parent))
    }

    fn find(&self, parent: Option<&str>) -> Option<usize> {
        let parent = parent.map(|it| cut(it, NAME_MAX));
        self.open.iter().position(|block| block.parent == parent)
    }
}

fn event(kind: BlockKind, text: &str, part: TextPart, parent: Option<&str>) -> AgentEvent {
    let (text, parent) = (cut(text, TEXT_MAX), parent.map(|it| cut(it, NAME_MAX)));
    match kind {
        BlockKind::Text => AgentEvent::Text { text, part, parent },
        BlockKind::Thinking => AgentEvent::Thinking { text, part, parent },
    }
}

/// FNV-1a: the same for a text however it is split. It distinguishes texts of one agent; no
/// one gains from making two alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, part: TextPart) -> Vec<AgentEvent> {
        vec![event(BlockKind::Text, text, part, None)]
    }

    #[test]
    fn a_whole_block_adds_only_what_its_pieces_lack() {
        let mut streams = BlockStreams::default();
        assert_eq!(streams.piece(None, BlockKind::Text, "a b"), text("a b", TextPart::Piece));
        assert_eq!(streams.piece(None, BlockKind::Text, " ä"), text(" ä", TextPart::Piece));
        assert_eq!(streams.whole(None, BlockKind::Text, "a b ä c"), text(" c", TextPart::End));
        assert_eq!(streams.whole(None, BlockKind::Text, "next"), text("next", TextPart::Whole));
    }

    #[test]
    fn a_block_whose_beginning_was_not_read_is_replaced() {
        let mut streams = BlockStreams::default();
        streams.piece(None, BlockKind::Text, "b");
        assert_eq!(streams.whole(None, BlockKind::Text, "ab"), text("ab", TextPart::Whole));
    }

    #[test]
    fn sub_agents_have_streams_of_their_own() {
        let mut streams = BlockStreams::default();
        streams.piece(None, BlockKind::Text, "a");
        streams.piece(Some("x"), BlockKind::Text, "b");
        assert_eq!(streams.whole(None, BlockKind::Text, "a"), text("", TextPart::End));
        let other = event(BlockKind::Text, "c", TextPart::End, Some("x"));
        assert_eq!(streams.whole(Some("x"), BlockKind::Text, "bc"), [other]);
        for sub_agent in 0..1000 {
            streams.piece(Some(&sub_agent.to_string()), BlockKind::Text, "a");
        }
        assert_eq!(streams.open.len(), STREAMS_MAX);
    }

    #[test]
    fn a_block_that_is_broken_off_is_dropped() {
        let mut streams = BlockStreams::default();
        streams.piece(None, BlockKind::Thinking, "a");
        let dropped = event(BlockKind::Thinking, "", TextPart::Dropped, None);
        let pieces = streams.piece(None, BlockKind::Text, "b");
        assert_eq!(pieces, [dropped, text("b", TextPart::Piece).remove(0)]);
        assert_eq!(streams.abandon(None), Some(text("", TextPart::Dropped).remove(0)));
        assert_eq!(streams.abandon(None), None);
    }
}

//! Which node of a Cluster has which keys.

use std::collections::BTreeMap;

/// How many slots there are.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: that of what is in its first braces, if anything is.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let size = rest.iter().position(|byte| *byte == b'}')?;
        (size > 0).then(|| &rest[..size])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = table();
    bytes.iter().fold(0, |sum, byte| (sum << 8) ^ TABLE[usize::from((sum >> 8) as u8 ^ byte)])
}

#[allow(clippy::cast_possible_truncation, reason = "places in the table are bytes")]
const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut place = 0;
    while place < 256 {
        let (mut sum, mut bit) = ((place as u16) << 8, 0);
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 };
            bit += 1;
        }
        table[place] = sum;
        place += 1;
    }
    table
}

/// Which node has which slot, and which slots are on their way: what all nodes of a Cluster know.
///
/// A slot that is on its way belongs to its old node until it is [assigned](Self::assign) to the new one.
/// Which of its keys have moved shows in the keys that the two nodes have.
#[derive(Clone, Debug)]
pub struct SlotTable {
    addresses: Vec<String>,
    /// Places among the addresses.
    owners: Vec<Option<u16>>,
    /// The new nodes of slots that are on their way.
    moves: BTreeMap<u16, u16>,
}

impl Default for SlotTable {
    fn default() -> Self {
        Self { addresses: Vec::new(), owners: vec![None; usize::from(SLOTS)], moves: BTreeMap::new() }
    }
}

impl SlotTable {
    /// The number of the node at an address, `host:port`, which may be new.
    pub fn node(&mut self, address: &str) -> u16 {
        let place = self.addresses.iter().position(|known| known == address).unwrap_or_else(|| {
            self.addresses.push(address.to_owned());
            self.addresses.len() - 1
        });
        u16::try_from(place).expect("there are fewer nodes than slots")
    }

    /// The address of a node, `host:port`.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn address(&self, node: u16) -> &str {
        &self.addresses[usize::from(node)]
    }

    /// Which node has a slot.
    pub fn owner(&self, slot: u16) -> Option<u16> {
        self.owners[usize::from(slot)]
    }

    /// Gives a slot to a node at once, which ends its way.
    pub fn assign(&mut self, slot: u16, node: u16) {
        self.owners[usize::from(slot)] = Some(node);
        self.moves.remove(&slot);
    }

    /// Gives several slots to a node.
    pub fn assign_all(&mut self, slots: std::ops::Range<u16>, node: u16) {
        slots.for_each(|slot| self.assign(slot, node));
    }

    /// Sends a slot on its way to another node: its owner migrates it, and `to` imports it.
    pub fn begin_move(&mut self, slot: u16, to: u16) {
        if self.owner(slot) != Some(to) {
            self.moves.insert(slot, to);
        }
    }

    /// Ends the way of a slot, which stays where it was.
    pub fn cancel_move(&mut self, slot: u16) {
        self.moves.remove(&slot);
    }

    /// Where a slot is on its way to.
    pub fn destination(&self, slot: u16) -> Option<u16> {
        self.moves.get(&slot).copied()
    }

    /// All slots that are on their way, with their owners and their new nodes.
    pub fn moves(&self) -> impl Iterator<Item = (u16, Option<u16>, u16)> {
        self.moves.iter().map(|(slot, to)| (*slot, self.owner(*slot), *to))
    }

    /// Neighbouring slots of one node: the first, the last, and the node.
    pub fn ranges(&self) -> Vec<(u16, u16, u16)> {
        let owned = (0..SLOTS).zip(&self.owners).filter_map(|(slot, owner)| owner.map(|owner| (slot, owner)));
        let mut ranges: Vec<(u16, u16, u16)> = Vec::new();
        for (slot, owner) in owned {
            match ranges.last_mut() {
                Some((_, last, node)) if *last + 1 == slot && *node == owner => *last = slot,
                _ => ranges.push((slot, slot, owner)),
            }
        }
        ranges
    }
}

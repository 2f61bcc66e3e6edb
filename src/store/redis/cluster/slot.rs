//! The slot of a key: CRC-16 of its hash tag, modulo 16,384.
//!
//! A name of a key comes in, a slot goes out. It must be what the Cluster computes, else every call
//! is redirected: the algorithm is that of the [Redis Cluster
//! specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).

/// How many slots a Cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// CRC-16/XMODEM of each byte: polynomial 0x1021, initial value 0, not reflected. With it the
/// checksum of a key takes one step a byte.
const TABLE: [u16; 256] = table();

/// Computes the checksum of each byte, bit by bit, when the crate is compiled.
const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte << 8, 0);
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = sum;
        byte += 1;
    }
    table
}

/// Returns the slot to which Redis assigns a key, from 0 to 16,383.
pub(in crate::store::redis) fn slot_of(redis_key: &[u8]) -> u16 {
    let tag = tag(redis_key).unwrap_or(redis_key);
    let sum = tag.iter().fold(0, |sum: u16, byte| sum << 8 ^ TABLE[usize::from(sum >> 8 ^ u16::from(*byte))]);
    sum % SLOTS
}

/// Returns the hash tag: what stands between the first opening brace and the next closing one.
/// `None` if there is no such pair, or nothing between them: then the whole key is hashed.
fn tag(redis_key: &[u8]) -> Option<&[u8]> {
    let behind = redis_key.iter().position(|byte| *byte == b'{')? + 1;
    let length = redis_key[behind..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &redis_key[behind..behind + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_that_redis_gives_them() {
        // As CLUSTER KEYSLOT replies.
        let slots = [("123456789", 12_739), ("foo", 12_182), ("bar", 5_061), ("hello", 866), ("", 0)];
        for (key, slot) in slots {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn only_the_first_hash_tag_counts_and_only_if_it_holds_something() {
        assert_eq!(slot_of(b"a{foo}b{bar}"), slot_of(b"foo"));
        assert_eq!(slot_of(b"a{foo}{bar}"), slot_of(b"{foo}"));
        assert_ne!(slot_of(b"{}foo"), slot_of(b"foo"));
        assert_ne!(slot_of(b"{foo"), slot_of(b"foo"));
    }
}

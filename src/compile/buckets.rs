//! Gradient buckets, by PyTorch's rule (`compute_bucket_assignment_by_size` in its reducer): a bucket takes gradients in the order in
//! which backward makes them, and closes when its size has reached the cap. The first bucket has a smaller cap, so that the first
//! all-reduce starts early. One oversized gradient fills a bucket by itself, which is why large models have few gradients to a bucket.

use crate::base::Bytes;

/// One bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Places of its gradients in the list that was assigned.
    pub members: Vec<usize>,
    /// Its payload.
    pub bytes: Bytes,
}

/// Assigns gradients of `sizes`, in the order in which they become ready.
#[must_use]
pub fn assign(sizes: &[Bytes], first_cap: Bytes, cap: Bytes) -> Vec<Bucket> {
    let mut buckets = Vec::new();
    let mut open = Bucket { members: Vec::new(), bytes: Bytes::ZERO };
    for (member, &bytes) in sizes.iter().enumerate() {
        open.members.push(member);
        open.bytes += bytes;
        let limit = if buckets.is_empty() { first_cap } else { cap };
        if open.bytes >= limit {
            buckets.push(std::mem::replace(&mut open, Bucket { members: Vec::new(), bytes: Bytes::ZERO }));
        }
    }
    if !open.members.is_empty() {
        buckets.push(open);
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_closes_when_it_reaches_its_cap() {
        let check = |sizes: &[u64], expected: &[&[usize]]| {
            let sizes: Vec<Bytes> = sizes.iter().copied().map(Bytes).collect();
            let buckets = assign(&sizes, Bytes(4), Bytes(10));
            let members: Vec<&[usize]> = buckets.iter().map(|bucket| bucket.members.as_slice()).collect();
            assert_eq!(members, expected);
            assert_eq!(buckets.iter().map(|bucket| bucket.bytes).sum::<Bytes>(), sizes.into_iter().sum());
        };
        check(&[], &[]);
        check(&[3], &[&[0]]);
        check(&[4, 9, 1, 10], &[&[0], &[1, 2], &[3]]);
        check(&[100, 100, 1, 2], &[&[0], &[1], &[2, 3]]);
        check(&[1, 1, 1, 5, 5, 6], &[&[0, 1, 2, 3], &[4, 5]]);
    }
}

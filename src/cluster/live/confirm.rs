//! The loop of all that live reads confirm: look at what is known, read what that
//! lacks, and look again.

use crate::decide::LiveRead;

/// A question whose answer live reads confirm.
pub trait Confirm {
    /// What comes of it.
    type Answer;

    /// The answer as far as it is known, and the reads that it lacks. `None`: kinds or
    /// relations changed meanwhile.
    async fn answer(&mut self) -> Option<(Self::Answer, Vec<LiveRead>)>;

    /// Carries the reads out, and keeps what they found for the next look.
    async fn read(&mut self, reads: Vec<LiveRead>);
}

/// Why there is no answer.
pub enum Unconfirmed<T> {
    /// After the last round this one still lacked reads.
    Lacking(T),
    /// Kinds or relations changed in the last round.
    Changing,
}

/// Asks until nothing is lacking, with so many rounds of reads at the most: what one
/// finds can lead to more.
pub async fn confirm<Q: Confirm>(
    question: &mut Q,
    rounds: usize,
) -> Result<Q::Answer, Unconfirmed<Q::Answer>> {
    for left in (0..=rounds).rev() {
        match question.answer().await {
            Some((answer, reads)) if reads.is_empty() => return Ok(answer),
            Some((answer, _)) if left == 0 => return Err(Unconfirmed::Lacking(answer)),
            Some((_, reads)) => question.read(reads).await,
            None => {}
        }
    }
    Err(Unconfirmed::Changing)
}

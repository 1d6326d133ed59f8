//! The loop that verdicts and releases share: compute an answer, read the missing objects live,
//! and compute it again.

use crate::decide::LiveRead;

/// A question whose answer needs live reads.
pub trait LiveQuestion {
    /// The type of the answer.
    type Answer;

    /// Computes the answer from the reads so far, and lists the missing reads. `None`: kinds or
    /// relations changed meanwhile.
    async fn answer(&mut self) -> Option<(Self::Answer, Vec<LiveRead>)>;

    /// Carries out the reads, and stores their results for the next answer.
    async fn read(&mut self, reads: Vec<LiveRead>);
}

/// Why there is no final answer.
pub enum Unconfirmed<T> {
    /// After the last round, this answer still needs reads.
    ReadsMissing(T),
    /// Kinds or relations changed in the last round.
    Changing,
}

/// Repeats rounds of reads until the answer needs no further reads, at most `rounds` times. The
/// objects of one round can make another round necessary.
pub async fn answer_with_reads<Q: LiveQuestion>(
    question: &mut Q,
    rounds: usize,
) -> Result<Q::Answer, Unconfirmed<Q::Answer>> {
    for remaining in (0..=rounds).rev() {
        match question.answer().await {
            Some((answer, reads)) if reads.is_empty() => return Ok(answer),
            Some((answer, _)) if remaining == 0 => return Err(Unconfirmed::ReadsMissing(answer)),
            Some((_, reads)) => question.read(reads).await,
            None => {}
        }
    }
    Err(Unconfirmed::Changing)
}

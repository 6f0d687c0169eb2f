"""How a model answers prompts, against answers read off by hand."""

import pytest
import torch
from hf_models import small_config
from torch import nn
from transformers import AutoModelForCausalLM

from rove_lab.model import GPT, GPTConfig
from rove_lab.prompt_scores import prompt_scores
from rove_lab.ruler import common_words_prompt, needle_prompt, variable_prompt


def encode(text):
    return list(text.encode())


def prompts(n=3):
    makers = (needle_prompt, variable_prompt, common_words_prompt)
    return [make(encode, n_tokens=700, seed=seed) for seed in range(n) for make in makers]


def test_the_scores_are_those_of_a_model_read_by_hand():
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_ctx=700, d_model=32, n_heads=2, n_layers=1)).double().eval()
    losses, tokens_right, answers_right = [], [], []
    for prompt in prompts(1):
        text = [*prompt.tokens.tolist()]
        loss, right = [], []
        for token in prompt.answer_tokens.tolist():  # one token after the other
            log_p = model(torch.tensor([text]))[0, -1].log_softmax(-1)
            loss.append(-log_p[token].item())
            right.append(log_p.argmax().item() == token)
            text.append(token)
        losses.append(sum(loss) / len(loss))
        tokens_right.append(sum(right) / len(right))
        answers_right.append(all(right))
    found = prompt_scores(model, prompts(1))
    assert found["nats"] == pytest.approx(sum(losses) / 3, rel=1e-5)
    assert found["tokens right"] == pytest.approx(sum(tokens_right) / 3)
    assert found["answers right"] == pytest.approx(sum(answers_right) / 3)


class Reader(nn.Module):
    """Says the answers it was told, in order; wrong in one token of each where it is `hasty`."""

    def __init__(self, told, hasty):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.told, self.hasty = iter(told), hasty

    def forward(self, tokens):
        answer = next(self.told).answer_tokens
        logits = torch.zeros(1, tokens.shape[1], 256)
        logits[0, torch.arange(-len(answer) - 1, -1), answer] = 50.0
        if self.hasty:
            logits[0, -2] = logits[0, -2].flip(-1)
        return logits


@pytest.mark.parametrize("hasty", [False, True])
def test_a_reader_who_knows_scores_one(hasty):
    asked = prompts()
    found = prompt_scores(Reader(asked, hasty), asked)
    assert found["answers right"] == (0.0 if hasty else 1.0)
    assert (found["tokens right"] == 1.0) != hasty
    assert (found["nats"] < 1e-6) != hasty


def test_a_hugging_face_model_is_read_too():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(small_config("llama", vocab_size=256)).eval()
    asked = prompts(1)[0]
    log_p = model(torch.cat((asked.tokens, asked.answer_tokens))[None]).logits[0].log_softmax(-1)
    k = len(asked.answer_tokens)
    expected = -log_p[-k - 1 : -1].gather(-1, asked.answer_tokens[:, None]).mean().item()
    assert prompt_scores(model, [asked])["nats"] == pytest.approx(expected, rel=1e-5)


def test_no_prompt_and_foreign_tokens_are_refused():
    model = GPT(GPTConfig(d_vocab=64, d_model=16, n_heads=2, n_layers=1))
    with pytest.raises(ValueError, match="expected at least one prompt, got none"):
        prompt_scores(model, [])
    with pytest.raises(ValueError, match="expected tokens from 0 to 63, the model's vocabulary"):
        prompt_scores(model, prompts(1))

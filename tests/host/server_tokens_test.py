#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Goal: llama-server answers after an eviction as if nothing had been taken, and prefills nothing
again.

Method: hold the same conversation with a stock server and with the same server started by mzcache
exec; evict between and during answers there. Tokens and the server's own count of prefilled and of
cached tokens must be those of the stock server, at each turn.
"""

import unittest

from hosts import GEMMA3, SMOLLM2, STORY, Server

SHARES = ("1", "25%", "50%", "75%", "100%")
QUESTIONS = (" Then the dog", " One night", " The ships", " In summer", " Nobody knew", " At last")
EXACT = ("--codec", "raw")


def counts(answer: dict) -> tuple[int, int]:
    return answer["timings"]["prompt_n"], answer["timings"]["cache_n"]


def converse(server: Server, between, during, slot: int = 0, text: str = STORY) -> list:
    """Some answers, `between` them a call with the number of the turn; then a streamed one with
    calls of `during`. Returns all tokens and counts."""
    prompt = server.tokenize(text, first=True)
    seen = []
    for turn, question in enumerate(QUESTIONS):
        code, answer = server.complete(prompt, 6, id_slot=slot)
        assert code == 200, answer
        seen.append((answer["tokens"], counts(answer)))
        prompt += answer["tokens"] + server.tokenize(question)
        between(turn)
    streamed = []
    for token in server.stream(prompt, 16, id_slot=slot):
        streamed.append(token)
        if len(streamed) in (3, 7, 11):
            during()
    seen.append(streamed)
    return seen


def nothing(*_ignored) -> None:
    pass


class TokensTest(unittest.TestCase):
    def check_memory_came_back(self, server: Server) -> None:
        """What an eviction freed is what the kernel sees, and the device really computes."""
        self.assertIn("libggml-mzcache.so", server.maps())
        before = server.pss_bytes()
        freed = server.evict("100%")
        fallen = before - server.pss_bytes()
        # Slack: 64 pages that the host's idle threads may take or leave.
        self.assertLess(abs(fallen - freed), 0.02 * freed + 64 * 4096)
        self.assertEqual(server.resident_bytes(), 0)
        self.assertGreater(freed, 60 << 20)

    def check(self, *arguments: str, model=SMOLLM2) -> None:
        arguments = ("-c", "1024", "-np", "1", *arguments)
        with Server(*arguments, model=model) as stock:
            right = converse(stock, nothing, nothing)
        # The stock server itself prefills only what is new, so equal counts say the same of ours.
        for _tokens, (prompt_n, cache_n) in right[1:-1]:
            self.assertLess(prompt_n, 32)
            self.assertGreater(cache_n, 250)
        with Server(*arguments, model=model, exec_options=EXACT) as server:
            def evict_share(turn: int) -> None:
                if turn < len(SHARES):
                    server.evict(SHARES[turn])
                else:
                    self.check_memory_came_back(server)

            seen = converse(server, evict_share, lambda: server.evict("100%"))
            self.assertEqual(seen, right)
            status = server.status()
            self.assertEqual(status["codec"], "raw")
            # An eviction that finds nothing restored since the last one frees nothing and does not
            # count; only the first of the three during the stream surely does.
            self.assertGreaterEqual(status["evictions"], len(SHARES) + 2)
            self.assertEqual(status["last_error"], "")

    def test_smollm2(self):
        self.check()

    def test_without_flash_attention(self):
        self.check("-fa", "off")

    def test_kv_in_8_bit(self):
        self.check("-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0")

    def test_sliding_window(self):
        # Its Q4_K weights are repacked by the CPU backend, which rounds in another way than without.
        self.check(model=GEMMA3)

    def test_context_shift(self):
        arguments = ("-c", "256", "-np", "1", "--context-shift")

        def answer(server: Server, evict) -> list[int]:
            prompt = server.tokenize(STORY, first=True)[:200]
            tokens = []
            for token in server.stream(prompt, 100, n_keep=8):
                tokens.append(token)
                if len(tokens) in (10, 50, 54, 58, 80):
                    evict("100%")
            return tokens

        with Server(*arguments) as stock:
            right = answer(stock, nothing)
        self.assertEqual(len(right), 100)  # more than fits behind 200 tokens: it has shifted
        with Server(*arguments, exec_options=EXACT) as server:
            self.assertEqual(answer(server, server.evict), right)

    def test_two_slots_stay_apart(self):
        arguments = ("-c", "2048", "-np", "2")
        texts = (STORY, "A recipe for bread: take flour, water, salt and time. " * 25)

        def alternate(server: Server, evict) -> list:
            prompts = [server.tokenize(text, first=True) for text in texts]
            seen = []
            for turn, question in enumerate(QUESTIONS):
                for slot in (0, 1):
                    code, answer = server.complete(prompts[slot], 6, id_slot=slot)
                    self.assertEqual(code, 200, answer)
                    seen.append((slot, answer["tokens"], counts(answer)))
                    prompts[slot] += answer["tokens"] + server.tokenize(question)
                    evict(SHARES[(turn + slot) % len(SHARES)])
            return seen

        with Server(*arguments) as stock:
            right = alternate(stock, nothing)
        with Server(*arguments, exec_options=EXACT) as server:
            self.assertEqual(alternate(server, server.evict), right)


if __name__ == "__main__":
    unittest.main()

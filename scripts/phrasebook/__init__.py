"""Generator of the demo corpus: a synthetic English-Italian phrasebook from a small grammar.

A program combines some 480 everyday words and ninety sentence patterns. The result is good for trying out the trainer
in minutes, without a download, on a task that cannot be solved word by word (agreement, verb endings, dropped subjects,
clitic pronouns, elision). It does not measure how well a model translates real text.

Where English is ambiguous the translation follows fixed conventions, so that every English sentence has one Italian
translation:

* you is one friend (tu), "you all" is several (voi);
* I, you, we, you all and they are masculine, and so are people named by profession ("the teacher"), unless a name
  or a pronoun shows otherwise: "my friend Anna" is "la mia amica Anna", "she is a teacher" is "è un'insegnante";
  "it" is rare;
* the simple past and the perfect are the passato prossimo; "used to" and states (was, had, knew, loved, wanted, needed)
  are the imperfetto; "is eating" is "sta mangiando"; "I read the book" is the present unless a time says otherwise;
* pronoun subjects are dropped; an object pronoun is attached to an infinitive ("voglio vederti") and precedes a finite
  verb; the participle agrees with a preceding lo, la, li, le, not with mi, ti, ci, vi ("ci ha visto");
* "to him" and "to them" are both "gli"; lo and la elide only before the forms of avere ("l'ho vista", "la aspetto");
* beautiful, good, new, old, small, young, ugly precede the Italian noun, all other adjectives follow it;
* a yes/no question has the word order of the statement; after who, what, where the subject comes last ("dove abita
  Anna").

The words are in `lexicon.tsv`, morphology in `italian*.py` and `english.py`, patterns in `patterns/`; `corpus.py` draws
the sentences, holds some word combinations out for the test split, and splits.

The package `mt` ships the text only. After a change here, write it again from the folder `scripts`:

    python -m phrasebook
"""

#!/usr/bin/env bash
# The recipes of docs/quality.md for Multi30k, from raw text to scored models, one command after the other:
#
#     scripts/multi30k_recipe.sh de             # or fr; SEEDS="1 2 3" DATA=data/multi30k RUNS=runs
#     SEEDS=1 EXTRA="training.max_steps=20 training.warmup_steps=5" scripts/multi30k_recipe.sh de   # a trial
#
# Small models of both directions translate the training text, and configs/multi30k_en_LANG.yaml learns from the
# references and all translations together (Nguyen et al. 2020, arXiv:1911.01986). Each command goes on where it was
# stopped, or does nothing when it was done, and so does the whole.
set -euo pipefail
cd "$(dirname "$0")/.."
lang=${1:?which language to translate into, de or fr}
data=${DATA:-data/multi30k}
runs=${RUNS:-runs}
extra=()
for setting in ${EXTRA:-}; do extra+=(--set "$setting"); done

# train SHAPE NAME SETTINGS...: a model of configs/multi30k_steps/SHAPE.yaml, into the language.
train() {
    local words=(--set "name=$2" --set "data.root=$data" --set "data.target_lang=$lang")
    local setting
    for setting in "data.valid.target=val.$lang" "${@:3}"; do words+=(--set "$setting"); done
    mt train --runs "$runs" --config "configs/multi30k_steps/$1.yaml" "${words[@]}" "${extra[@]}"
}

# pairs SOURCE:TARGET ...: the training text, as a configuration lists it.
pairs() {
    local list='' pair
    for pair in "$@"; do list+="{source: train.${pair%:*}, target: train.${pair#*:}}, "; done
    printf 'data.train=[%s]' "${list%, }"
}

# translate FROM TO SETTINGS...: the training text, by one teacher or by several as one.
translate() {
    mt distill --input "$data/train.$1" --output "$data/train.$2" "${@:3}"
}

# The way back: a sentence's translations are sources for the human one.
train small "$lang-en" "$(pairs "$lang:en")" training.max_steps=4000 \
    data.source_lang="$lang" data.target_lang=en data.valid.source="val.$lang" data.valid.target=val.en
translate "$lang" "from-$lang.en" --model "$runs/$lang-en" --compute-type int8 --length-penalty 1.2

case $lang in
de)
    train small en-de-small "$(pairs en:de)"
    train wide en-de-wide "$(pairs en:de)"
    translate en small.de --model "$runs/en-de-small" --compute-type int8
    translate en wide.de --model "$runs/en-de-wide" --compute-type int8
    text=$(pairs en:de en:small.de en:wide.de from-de.en:de)
    train small en-de-small-student "$text" model.dropout=0.1 training.max_steps=8000
    train wide en-de-wide-student "$text" model.dropout=0.15 training.max_steps=5000 training.warmup_steps=250
    translate en students.de --model "$runs/en-de-small-student" --model "$runs/en-de-wide-student"
    ;;
fr)
    train small en-fr-small "$(pairs en:fr)" training.max_steps=4000
    translate en small.fr --model "$runs/en-fr-small" --compute-type int8 --length-penalty 1.2
    text=$(pairs en:fr en:small.fr from-fr.en:fr)
    train small en-fr-student "$text" model.dropout=0.1 training.max_steps=7500
    translate en student.fr --model "$runs/en-fr-student" --length-penalty 1.2
    ;;
*)
    echo "the recipes are for de and fr, not $lang" >&2
    exit 2
    ;;
esac

for seed in ${SEEDS:-1 2 3}; do
    words=(--set seed="$seed" --set name="en-$lang-$seed" --set data.root="$data")
    mt train --runs "$runs" --config "configs/multi30k_en_$lang.yaml" "${words[@]}" "${extra[@]}"
done
reference=$data/test_2016_flickr.$lang
python scripts/score_multi30k.py --lang "$lang" --reference "$reference" "$runs"/en-"$lang"-[0-9]*/eval/test.beam

#!/usr/bin/env bash
# The recipe of docs/lab/students.md for Multi30k in several steps, from raw text to scored models, one command after the other:
#
#     scripts/multi30k_recipe.sh de             # or fr; SEEDS="1 2 3" DATA=data/multi30k RUNS=runs
# A trial, which wants folders of its own (DATA a copy of the text): else the recipe would go on with its models.
#     RUNS=/tmp/runs DATA=/tmp/text SEEDS=1 EXTRA="training.max_steps=20 training.warmup_steps=5" scripts/multi30k_recipe.sh de
#
# Three models of configs/multi30k_en_LANG.yaml learn from the references and translate the training text: together, and each so
# that of its 12 best the one closest to the reference is taken (Kim and Rush 2016, arXiv:1606.07947). Another, which learns both
# directions, makes sources of the references (Nguyen et al. 2020, arXiv:1911.01986). Then each of the three goes on as a student,
# and learns from the references and all of that: these are the models. French was measured up to the three only.
# Each command goes on where it was stopped, or does nothing when it was done, and so does the whole.
set -euo pipefail
cd "$(dirname "$0")/.."
lang=${1:?which language to translate into, de or fr}
data=${DATA:-data/multi30k}
runs=${RUNS:-runs}
extra=()
# Half as fast again on processors that have it.
if grep -qs avx512_bf16 /proc/cpuinfo; then extra+=(--set training.precision=bf16); fi
for setting in ${EXTRA:-}; do extra+=(--set "$setting"); done
case $lang in
de) penalty=1.6 ;;
fr) penalty=1.4 ;;
*)
    echo "the recipe is for de and fr, not $lang" >&2
    exit 2
    ;;
esac

# train NAME SETTINGS...: a model of the configuration with other settings.
train() {
    local words=(--set "name=$1" --set "data.root=$data")
    local setting
    for setting in "${@:2}"; do words+=(--set "$setting"); done
    mt train --runs "$runs" --config "configs/multi30k_en_$lang.yaml" "${words[@]}" "${extra[@]}"
}

# translate FROM TO SETTINGS...: the training text, unless that was done since the models were made.
translate() {
    local word old=
    for word in "${@:3}"; do
        if [ "$word/model/MANIFEST.json" -nt "$data/train.$2" ]; then old=1; fi
    done
    if [ -n "$old" ] || [ ! -e "$data/train.$2" ]; then
        mt distill --input "$data/train.$1" --output "$data/train.$2" "${@:3}"
    fi
}

references="{source: train.en, target: train.$lang}"

train "en-$lang-both-ways" data.train="$references" data.test=null training.max_steps=2500 \
    training.schedule=constant training.bidirectional_epochs=25
translate "$lang" "from-$lang.en" --model "$runs/en-$lang-both-ways" --length-penalty 1.2 --compute-type int8

together=()
for seed in 1 2 3; do
    train "en-$lang-first-$seed" seed="$seed" data.train="$references"
    translate en "closest-$seed.$lang" --model "$runs/en-$lang-first-$seed" --length-penalty "$penalty" \
        --beam 12 --closest-to "$data/train.$lang" --compute-type int8
    together+=(--model "$runs/en-$lang-first-$seed")
done
translate en "together.$lang" "${together[@]}" --length-penalty "$penalty"

for seed in ${SEEDS:-1 2 3}; do
    train "en-$lang-$seed" seed="$seed" training.init_from="$runs/en-$lang-first-$seed" training.bidirectional_epochs=0 \
        training.max_steps=6000 training.learning_rate=5e-3 training.warmup_steps=200 model.dropout=0.2 \
        data.train="[{source: train.en, target: train.$lang, weight: 2},
        {source: train.en, target: train.together.$lang, synthetic: true},
        {source: train.en, target: train.closest-1.$lang, synthetic: true},
        {source: train.en, target: train.closest-2.$lang, synthetic: true},
        {source: train.en, target: train.closest-3.$lang, synthetic: true},
        {source: train.from-$lang.en, target: train.$lang, synthetic: true}]"
done
for model in "first-" ""; do
    python scripts/score_multi30k.py --lang "$lang" --reference "$data/test_2016_flickr.$lang" \
        "$runs/en-$lang-$model"[0-9]*/eval/test.beam
done

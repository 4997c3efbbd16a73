#!/usr/bin/env bash
# The recipes of docs/quality.md for Multi30k, from raw text to scored models, one command after the other:
#
#     scripts/multi30k_recipe.sh de             # or fr; SEEDS="1 2 3" DATA=data/multi30k RUNS=runs
# A trial, which wants folders of its own (DATA a copy of the text): else the recipe would go on with its models.
#     RUNS=/tmp/runs DATA=/tmp/text SEEDS=1 EXTRA="training.max_steps=20 training.warmup_steps=5" scripts/multi30k_recipe.sh de
#
# Into German, small models of both directions and a wide one translate the training text, and two students learn from the
# references and all translations (Nguyen et al. 2020, arXiv:1911.01986). Of each line's translations they also get those
# closest to the reference (Kim and Rush 2016, arXiv:1606.07947). Into French, which takes half the time, the students are two
# wide models that go on with what both translate. Then the students translate the training text, each and together, and
# one of them learns from that for a while longer, with configs/multi30k_steps/last_LANG.yaml: that is the model. What is made
# three times, with three seeds, is this last step; the first and the third go on with one student, the second with the
# other.
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
fr) penalty=1.2 ;;
*)
    echo "the recipes are for de and fr, not $lang" >&2
    exit 2
    ;;
esac

# train SHAPE NAME SETTINGS...: a model of configs/multi30k_steps/SHAPE.yaml, into the language.
train() {
    local words=(--set "name=$2" --set "data.root=$data" --set "data.target_lang=$lang")
    local setting
    for setting in "data.valid.target=val.$lang" "${@:3}"; do words+=(--set "$setting"); done
    mt train --runs "$runs" --config "configs/multi30k_steps/$1.yaml" "${words[@]}" "${extra[@]}"
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

closest=(--beam 12 --closest-to "$data/train.$lang" --length-penalty "$penalty" --compute-type int8)

# students_of_several: two students from random weights, which learn from models of other shapes and directions.
students_of_several() {
    # The way back: a sentence's translations are sources for the human one.
    train small "$lang-en" training.max_steps=4000 data.train="[{source: train.$lang, target: train.en}]" \
        data.source_lang="$lang" data.target_lang=en data.valid.source="val.$lang" data.valid.target=val.en
    translate "$lang" "from-$lang.en" --model "$runs/$lang-en" --length-penalty 1.2 --compute-type int8
    local teacher student
    for teacher in small wide; do
        local settings=(data.train="[{source: train.en, target: train.$lang}]")
        if [ "$teacher" = small ]; then settings+=(model.dropout=0.3 training.max_steps=9000); fi
        train "$teacher" "en-$lang-$teacher" "${settings[@]}"
        translate en "$teacher.closest.$lang" --model "$runs/en-$lang-$teacher" "${closest[@]}"
    done
    translate en "small.$lang" --model "$runs/en-$lang-small" --length-penalty "$penalty" --compute-type int8
    for student in 1 2; do
        train student "en-$lang-student-$student" seed="$student" data.train="[{source: train.en, target: train.$lang},
            {source: train.en, target: train.small.$lang}, {source: train.en, target: train.small.closest.$lang},
            {source: train.en, target: train.wide.closest.$lang}, {source: train.from-$lang.en, target: train.$lang}]"
    done
}

# students_of_two: two wide models, which go on with what both of them translate.
students_of_two() {
    local number first=()
    for number in 1 2; do
        train wide "en-$lang-first-$number" seed="$number" data.train="[{source: train.en, target: train.$lang}]"
        translate en "first-$number.closest.$lang" --model "$runs/en-$lang-first-$number" "${closest[@]}"
        first+=(--model "$runs/en-$lang-first-$number")
    done
    translate en "first.$lang" "${first[@]}" --length-penalty "$penalty"
    for number in 1 2; do
        train student "en-$lang-student-$number" seed="1$number" training.init_from="$runs/en-$lang-first-$number" \
            training.max_steps=3000 training.validate_every=500 \
            training.learning_rate=3e-3 training.warmup_steps=150 \
            data.train="[{source: train.en, target: train.$lang}, {source: train.en, target: train.first.$lang},
            {source: train.en, target: train.first-1.closest.$lang},
            {source: train.en, target: train.first-2.closest.$lang}]"
    done
}

if [ "$lang" = de ]; then students_of_several; else students_of_two; fi
students=()
for student in 1 2; do
    translate en "student-$student.closest.$lang" --model "$runs/en-$lang-student-$student" "${closest[@]}"
    students+=(--model "$runs/en-$lang-student-$student")
done
translate en "students.$lang" "${students[@]}" --length-penalty "$penalty"

for seed in ${SEEDS:-1 2 3}; do
    words=(--set seed="$seed" --set name="en-$lang-$seed" --set data.root="$data")
    words+=(--set training.init_from="$runs/en-$lang-student-$((2 - seed % 2))")
    mt train --runs "$runs" --config "configs/multi30k_steps/last_$lang.yaml" "${words[@]}" "${extra[@]}"
done
reference=$data/test_2016_flickr.$lang
python scripts/score_multi30k.py --lang "$lang" --reference "$reference" "$runs"/en-"$lang"-[0-9]*/eval/test.beam

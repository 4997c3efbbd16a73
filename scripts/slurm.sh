#!/usr/bin/env bash
# Trains on several machines of a Slurm cluster, one process a GPU:
#     sbatch --nodes 2 scripts/slurm.sh configs/wmt14_en_de_big.yaml
# Two minutes before its time limit it is sent SIGTERM, and saves its state; submitted again, it resumes.
#SBATCH --job-name=mt
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --output=%x-%j.log
set -euo pipefail
config=${1:?which configuration}
shift
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=4
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # which srun ignores since 22.05
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # a restart must not find the addresses of processes that died
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=110 # seconds for a step, a validation and a checkpoint; 30 otherwise
exec srun torchrun \
    --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-gpu}" --max-restarts 3 \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:29500" \
    -m mt train --config "$config" "$@"

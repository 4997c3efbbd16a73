"""What people look at: pictures of attention, and reports of a training."""

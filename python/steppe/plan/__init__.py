"""From a resolution and its coefficients to a plan: the flat list of terms the core evaluates."""

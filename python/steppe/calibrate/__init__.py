"""Fitting the refined laws: measured per-operator tables in, coefficient sets out.

`run.calibrate` fits, `write` stores, `report` judges, `laws` is the reference evaluation of every law. pandas, pyarrow
and scipy are needed only to fit (`pip install 'steppe[calibrate]'`) and are imported where they are used.
"""

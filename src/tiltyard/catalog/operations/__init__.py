"""Operations on one table of a catalog, by its id: rows, queries, indices, tags, versions, transactions.

Each finds the table as everything else does (`catalog.found`) and lets `dataset` do the work; none of them
knows the models of the plug-in interface or of the REST server, which translate to and from these.
"""

"""Wire messages: .proto files in our own words and the modules generated from them (imported only by
`format/`).
"""
